"""Hugging Face's models in small random configurations: infer, permute, run in PyTorch."""

import jax
import pytest
import torch

import unf.torch

transformers = pytest.importorskip("transformers")
pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore")]

SMALL = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {**SMALL, "num_key_value_heads": 2}
VISION = {**SMALL, "image_size": 8, "patch_size": 4, "num_channels": 3}
TOKENS = torch.tensor([[3, 5, 7, 11, 13, 17]])
IMAGE = torch.linspace(-1, 1, 3 * 8 * 8).reshape(1, 3, 8, 8)
IMAGE_32 = torch.linspace(-1, 1, 3 * 32 * 32).reshape(1, 3, 32, 32)

TEXT = {
    "GPT2LMHeadModel": {
        "vocab_size": 40, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 32,
    },
    "OPTForCausalLM": {**SMALL, "ffn_dim": 24, "word_embed_proj_dim": 16},
    "GPTNeoXForCausalLM": SMALL,
    "GPTNeoForCausalLM": {
        **SMALL, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]],
    },
    "GPTJForCausalLM": {
        "vocab_size": 40, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 32,
        "rotary_dim": 4,
    },
    "BloomForCausalLM": {"vocab_size": 40, "hidden_size": 16, "n_layer": 2, "n_head": 4},
    "LlamaForCausalLM": GROUPED,
    "MistralForCausalLM": GROUPED,
    "Qwen2ForCausalLM": GROUPED,
    "Qwen3ForCausalLM": {**GROUPED, "head_dim": 4},
    "GemmaForCausalLM": {**GROUPED, "head_dim": 4},
    "Gemma2ForCausalLM": {**GROUPED, "head_dim": 4},
    "PhiForCausalLM": GROUPED,
    "StableLmForCausalLM": GROUPED,
    "FalconForCausalLM": SMALL,
    "OlmoForCausalLM": GROUPED,
    "CohereForCausalLM": GROUPED,
    "BertForMaskedLM": SMALL,
    "RobertaForMaskedLM": SMALL,
    "ElectraForMaskedLM": {**SMALL, "embedding_size": 16},
    "AlbertForMaskedLM": {**SMALL, "embedding_size": 8},
    "DistilBertForMaskedLM": {
        "vocab_size": 40, "dim": 16, "hidden_dim": 24, "n_layers": 2, "n_heads": 4,
        "max_position_embeddings": 32,
    },
    "DebertaV2ForMaskedLM": SMALL,
    "MPNetForMaskedLM": SMALL,
    "MobileBertForMaskedLM": {
        **SMALL, "embedding_size": 8, "intra_bottleneck_size": 8, "true_hidden_size": 8,
    },
    "MambaForCausalLM": {
        "vocab_size": 40, "hidden_size": 16, "state_size": 4, "num_hidden_layers": 2,
    },
    "T5EncoderModel": {
        "vocab_size": 40, "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4,
    },
    "FNetForMaskedLM": SMALL,
}  # fmt: skip
IMAGES = {
    "ViTForImageClassification": VISION,
    "DeiTForImageClassification": VISION,
    "BeitForImageClassification": VISION,
    "Dinov2ForImageClassification": VISION,
    "ResNetForImageClassification": {
        "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic",
    },
    "ConvNextForImageClassification": {
        "num_stages": 2, "hidden_sizes": [8, 16], "depths": [1, 1], "patch_size": 2,
    },
    "RegNetForImageClassification": {
        "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "groups_width": 4,
    },
    "SegformerForImageClassification": {
        "num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [8, 16],
        "patch_sizes": [3, 3], "strides": [2, 2], "num_attention_heads": [2, 2],
        "mlp_ratios": [2, 2], "decoder_hidden_size": 8,
    },
    "SwinForImageClassification": {
        "image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2],
        "window_size": 4,
    },
}  # fmt: skip
EXPERTS = {**GROUPED, "num_local_experts": 3, "num_experts_per_tok": 2}
CASES = {
    **{name: (config, {"input_ids": TOKENS}) for name, config in TEXT.items()},
    **{
        name: (config, {"pixel_values": IMAGE if config is VISION else IMAGE_32})
        for name, config in IMAGES.items()
    },
}


def make(name, config):
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    config = kind.config_class(**config)
    for flag in ("use_cache", "output_router_logits"):
        if hasattr(config, flag):
            setattr(config, flag, False)
    return kind(config)


def check(model, inputs):
    space = unf.torch.infer(model, **inputs)
    assert space.sizes
    report = unf.torch.verify(model, space, **inputs, key=jax.random.key(0))
    assert max(report.changes.values()) < 1e-10


@pytest.mark.parametrize("name", CASES)
def test_permuting_does_not_change_the_outputs(name):
    config, inputs = CASES[name]
    check(make(name, config), inputs)


def test_experts_as_a_batch_of_products():
    model = make("MixtralForCausalLM", EXPERTS)
    model.set_experts_implementation("batched_mm")
    check(model, {"input_ids": TOKENS})


@pytest.mark.parametrize(
    ("implementation", "message"),
    [
        ("grouped_mm", r"at moe\.py.*grouped_mm.* cannot be traced"),
        ("eager", r"in MixtralExperts\.forward.*nonzero.* needs the values of tensors"),
    ],
)
def test_hard_routing_is_named(implementation, message):
    model = make("MixtralForCausalLM", EXPERTS)
    model.set_experts_implementation(implementation)
    with pytest.raises(unf.torch.TraceError, match=message):
        unf.torch.infer(model, TOKENS)
