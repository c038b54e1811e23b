"""Torchvision's models with random weights: infer, permute, run in PyTorch."""

import jax
import numpy as np
import pytest
import torch

import unf.torch

pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore")]
MODELS = {
    "alexnet": {},
    "densenet121": {"growth_rate": 4, "block_config": (1, 2), "num_init_features": 8},
    "efficientnet_b0": {},
    "googlenet": {"aux_logits": False, "init_weights": False},
    "mobilenet_v3_small": {"width_mult": 0.25},
    "resnet18": {},
    "resnext50_32x4d": {},
    "shufflenet_v2_x0_5": {},
    "squeezenet1_1": {},
    "vgg11": {},
}
"""Each is checked with its own weights and one random permutation of all axes at once."""


@pytest.fixture(scope="module")
def models():
    """Torchvision's Python part; models do not need its compiled operators, which may not load."""
    pytest.importorskip("PIL")
    library = torch.library.Library("torchvision", "FRAGMENT")
    try:
        pytest.importorskip("torchvision")
    except RuntimeError:
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
    yield pytest.importorskip("torchvision.models")


@pytest.mark.parametrize("name", MODELS)
def test_permuting_does_not_change_the_outputs(models, name):
    torch.manual_seed(0)
    options = {"num_classes": 10, **MODELS[name]}
    if name == "densenet121":
        model = models.DenseNet(**options)
    else:
        model = getattr(models, name)(weights=None, **options)
    model, x = model.double().eval(), torch.randn(1, 3, 64, 64, dtype=torch.float64)
    for weight in unf.torch.features(model.state_dict()):
        entry = model.state_dict()[weight]
        entry.add_(0.02 * torch.randn_like(entry))  # initial zeros and ones hide errors
    space = unf.torch.infer(model, x)
    assert space.sizes
    with torch.no_grad(), jax.enable_x64(True):
        before = model(x)
        features = jax.tree.map(np.asarray, unf.torch.features(model.state_dict()))
        permuted = space.permute(features, space.sample_permutation(jax.random.key(0)))
        model.load_state_dict(unf.torch.to_state_dict(permuted, like=model))
        after = model(x)
    assert (after - before).abs().max() < 1e-10 * before.abs().max()
