"""Weight spaces of known networks, by shape: for tests, benchmarks and the paper's tables.

Functions named `paper_*` return the specifications that reproduce the paper's numbers, whether
or not they are symmetries of the networks; the others are true symmetries.
"""

from itertools import pairwise

import jax
import jax.numpy as jnp

from ..spec import WeightSpace
from ..spec._roles import roles_by_pattern

_Entry = tuple[str | tuple, tuple[int, ...]]
_ROLES = {
    **dict.fromkeys(["embed", "wte", "wpe", "*/i[nrz]/kernel"], "index out"),
    **dict.fromkeys(["*/scale", "*ln_*/g"], "scale"),
    "initial_state": "shift shift",
}
"""Roles of the leaves of all networks here that are not those of JAX's order."""


def _space(entries: dict[str, _Entry], **sizes: int) -> WeightSpace:
    spec = {path: leaf for path, (leaf, _) in entries.items()}
    shapes = {p: jax.ShapeDtypeStruct(shape, jnp.float32) for p, (_, shape) in entries.items()}
    return WeightSpace.from_spec(spec, shapes, sizes=sizes, roles=roles_by_pattern(_ROLES, shapes))


def mlp(*widths: int) -> WeightSpace:
    """A multilayer perceptron with biases; its inputs and outputs are fixed."""
    names = [f"h{i}" for i in range(len(widths))]
    names[0], names[-1] = "[in]", "[out]"
    entries: dict[str, _Entry] = {}
    for i, ((a, b), (m, n)) in enumerate(zip(pairwise(names), pairwise(widths), strict=True)):
        entries[f"w{i}"] = (f"{a} {b}", (m, n))
        entries[f"b{i}"] = (b, (n,))
    return _space(entries)


def gru_seq2seq(hidden: int = 128, vocabulary: int = 13) -> WeightSpace:
    """The encoder and decoder GRU of the Tiny RNN Zoo, with one hidden permutation (§4.1).

    The vocabulary is fixed; `relax()` gives the paper's setting with 2,058 terms.
    """
    entries: dict[str, _Entry] = {}
    for cell in ("encoder", "decoder"):
        for gate in "nrz":
            entries[f"{cell}/h{gate}/kernel"] = ("h h", (hidden, hidden))
            entries[f"{cell}/i{gate}/kernel"] = ("[v] h", (vocabulary, hidden))
            entries[f"{cell}/i{gate}/bias"] = ("h", (hidden,))
        entries[f"{cell}/hn/bias"] = ("h", (hidden,))
    entries["output/kernel"] = ("h [v]", (hidden, vocabulary))
    entries["output/bias"] = ("[v]", (vocabulary,))
    return _space(entries)


def transformer(
    num_blocks: int = 2, width: int = 32, heads: int = 4, vocabulary: int = 1000, expand: int = 4
) -> WeightSpace:
    """A pre-norm Transformer: one residual stream `d`, and nested permutations in each head."""
    entries: dict[str, _Entry] = {
        "embed": ("[in] d", (vocabulary, width)),
        "output/kernel": ("d [out]", (width, vocabulary)),
        "output/bias": ("[out]", (vocabulary,)),
    }
    for norm in ["norm", *(f"{i}/norm{j}" for i in range(num_blocks) for j in (1, 2))]:
        entries[f"{norm}/scale"] = entries[f"{norm}/bias"] = ("d", (width,))
    for i in range(num_blocks):
        for name, inner in (("q", "k"), ("k", "k"), ("v", "v")):
            head = f"(h{i} h{i}.{inner})"
            entries[f"{i}/{name}/kernel"] = (f"d {head}", (width, width))
            entries[f"{i}/{name}/bias"] = (head, (width,))
        entries[f"{i}/attention/kernel"] = (f"(h{i} h{i}.v) d", (width, width))
        entries[f"{i}/up/kernel"] = (f"d m{i}", (width, expand * width))
        entries[f"{i}/up/bias"] = (f"m{i}", (expand * width,))
        entries[f"{i}/down/kernel"] = (f"m{i} d", (expand * width, width))
        entries[f"{i}/attention/bias"] = entries[f"{i}/down/bias"] = ("d", (width,))
    return _space(entries, **{f"h{i}": heads for i in range(num_blocks)})


def gpt2(num_blocks: int = 12, width: int = 768, heads: int = 12) -> WeightSpace:
    """GPT-2 with tied embedding: 148 tensors, 124 million weights at the default size."""
    entries: dict[str, _Entry] = {
        "wte": ("[token] d", (50257, width)),
        "wpe": ("[position] d", (1024, width)),
        "ln_f/g": ("d", (width,)),
        "ln_f/b": ("d", (width,)),
    }
    for i in range(num_blocks):
        h, m = f"h{i}", f"m{i}"
        fused = f"(({h} {h}.k) + ({h} {h}.k) + ({h} {h}.v))"
        entries |= {f"h{i}/ln_{j}/{p}": ("d", (width,)) for j in (1, 2) for p in "gb"}
        entries |= {
            f"h{i}/attn/c_attn/w": (f"d {fused}", (width, 3 * width)),
            f"h{i}/attn/c_attn/b": (fused, (3 * width,)),
            f"h{i}/attn/c_proj/w": (f"({h} {h}.v) d", (width, width)),
            f"h{i}/attn/c_proj/b": ("d", (width,)),
            f"h{i}/mlp/c_fc/w": (f"d {m}", (width, 4 * width)),
            f"h{i}/mlp/c_fc/b": (m, (4 * width,)),
            f"h{i}/mlp/c_proj/w": (f"{m} d", (4 * width, width)),
            f"h{i}/mlp/c_proj/b": ("d", (width,)),
        }
    return _space(
        entries,
        **{f"h{i}": heads for i in range(num_blocks)},
        **{f"h{i}.k": width // heads for i in range(num_blocks)},
    )


def resnet50(num_classes: int = 1000) -> WeightSpace:
    """ResNet-50 with bottleneck blocks: 161 tensors, 25.6 million weights."""
    entries: dict[str, _Entry] = {}

    def conv(path: str, window: int, source: _Entry, target: _Entry) -> None:
        (a, (m,)), (b, (n,)) = source, target
        entries[f"{path}/kernel"] = (f"{window} {window} {a} {b}", (window, window, m, n))
        entries[f"{path}/scale"] = entries[f"{path}/bias"] = (b, (n,))

    stream: _Entry = ("stem", (64,))
    conv("stem", 7, ("[rgb]", (3,)), stream)
    for stage, (blocks, width) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)]):
        wide: _Entry = (f"stage{stage}", (4 * width,))
        for block in range(blocks):
            path = f"stage{stage}/{block}"
            inner: list[_Entry] = [(f"s{stage}b{block}{c}", (width,)) for c in "ab"]
            conv(f"{path}/conv1", 1, stream, inner[0])
            conv(f"{path}/conv2", 3, inner[0], inner[1])
            conv(f"{path}/conv3", 1, inner[1], wide)
            if block == 0:
                conv(f"{path}/shortcut", 1, stream, wide)
            stream = wide
    entries["head/kernel"] = (f"{stream[0]} [class]", (2048, num_classes))
    entries["head/bias"] = ("[class]", (num_classes,))
    return _space(entries)


def paper_mlp() -> WeightSpace:
    """MLP on Fashion-MNIST (appendix B): 32 terms."""
    return _space(
        {
            "w0": ((0, 1), (64, 32)),
            "b0": ((1,), (32,)),
            "w1": ((1, 2), (32, 10)),
            "b1": ((2,), (10,)),
        }
    )


def paper_cnn(corrected: bool = False) -> WeightSpace:
    """CNN on CIFAR-10 (appendix B): 144 terms, 86 if corrected.

    The paper's count ties the first filter's height to the RGB axis: it was named `-i` with
    `i = 0`, and -0 is 0. Corrected, the height has a name of its own.
    """
    height = -2 if corrected else 0
    return _space(
        {
            "k0": ((height, -3, 0, 1), (3, 3, 3, 16)),
            "b0": ((1,), (16,)),
            "k1": ((-1, -4, 1, 2), (3, 3, 16, 32)),
            "b1": ((2,), (32,)),
            "w": ((2, 3), (32, 10)),
            "b": ((3,), (10,)),
        }
    )


def paper_rnn(vocabulary: int = 256) -> WeightSpace:
    """RNN on LM1B (appendix B): 165 terms."""
    return _space(
        {
            "embed": ((-1, 0), (vocabulary, 32)),
            "in_w": ((0, 1), (32, 64)),
            "in_b": ((1,), (64,)),
            "rec_w": ((1, 1), (64, 64)),
            "rec_b": ((1,), (64,)),
            "out_w": ((1, -1), (64, vocabulary)),
            "out_b": ((-1,), (vocabulary,)),
            "initial_state": ((-2, 1), (1, 64)),
        }
    )


def paper_transformer(vocabulary: int = 1000, width: int = 32) -> WeightSpace:
    """Transformer on LM1B (appendix B): 37 tensors, 1,918 terms.

    Not a symmetry of the network: residual additions force 0 = 2 = 4, and permuting columns
    of q, k and v across heads changes what it computes.
    """
    hidden = 4 * width
    sizes = {0: width, 1: hidden, 2: width, 3: hidden, 4: width, -1: vocabulary, -2: vocabulary}
    names: dict[str, tuple[int, ...]] = {"embed": (-1, 0), "output/w": (4, -2), "output/b": (-2,)}
    names |= {"norm/scale": (4,), "norm/bias": (4,)}
    for block, (e, h, after) in enumerate([(0, 1, 2), (2, 3, 4)]):
        for name in "qkv":
            names |= {f"{block}/{name}/w": (e, h), f"{block}/{name}/b": (h,)}
        names |= {f"{block}/attention/w": (h, e), f"{block}/attention/b": (e,)}
        names |= {f"{block}/norm{i}/{p}": (e,) for i in (1, 2) for p in ("scale", "bias")}
        names |= {f"{block}/up/w": (e, h), f"{block}/up/b": (h,)}
        names |= {f"{block}/down/w": (h, after), f"{block}/down/b": (after,)}
    return _space({p: (axes, tuple(sizes[a] for a in axes)) for p, axes in names.items()})
