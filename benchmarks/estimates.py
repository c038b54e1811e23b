"""How much of an estimated meta-gradient is noise, for each part of θ.

Several meta-trainings that never move from one θ average their estimates over a whole unroll. What
they agree on is signal, and what they do not is noise.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from unf.lab.lopt import MetaTraining, first_theta
from unf.lab.lopt._options import make_task
from unf.meta import InnerTraining, advance, begin
from unf.optim import load

COPIES = 16
TRAINED = {
    "normalized": str(Path(__file__).parent / "optimizers" / "{}-mlp-2026-11-15.safetensors"),
    "adaptive": "{}-mlp-fashion-mnist",
}
"""Optimizers after 50,000 meta-steps, by form: earlier ones, and those that ship."""


def cases() -> list[tuple[str, str, str, str, str, float]]:
    """Tasks, kinds, where θ is in meta-training, its form, estimators, and σ."""
    end = "end", "normalized"
    found = [("mlp", kind, *end, "pes", 0.01) for kind in ("sgdm", "deepset", "unf")]
    for kind in ("deepset", "unf"):
        found += [("mlp", kind, *end, "pes", sigma) for sigma in (0.003, 0.03)]
        found += [("mlp", kind, *end, name, 0.01) for name in ("nres", "es")]
    for kind in ("deepset", "unf", "tied"):
        found += [("mlp", kind, "start", "adaptive", name, 0.03) for name in ("pes", "nres")]
    found += [("mlp", kind, "end", "adaptive", "nres", 0.03) for kind in ("deepset", "unf")]
    return found


def run(
    name: str,
    kind: str,
    where: str,
    form: str,
    estimator: str,
    sigma: float,
    *,
    copies: int = COPIES,
    pairs: int = 16,
    horizon: int = 2000,
    window: int = 50,
) -> dict[str, Any]:
    """The squared norms of signal and noise in the mean estimate of one unroll, by part of θ."""
    task, _ = make_task(name)
    chosen: dict[str, Any] = {"estimator": estimator, "form": form}
    options = MetaTraining(sigma=sigma, pairs=pairs, horizon=horizon, window=window, **chosen)
    theta = load(TRAINED[form].format(kind)) if where == "end" else first_theta(task, kind, options)
    problem, one = InnerTraining(task.data().train, task), options.make_estimator(task, 10.0)
    adds = optax.GradientTransformation(_zeros, _add)
    keys = [jax.random.split(jax.random.key(seed)) for seed in range(copies)]
    states = [begin(problem, one, adds, theta, key=key[0]) for key in keys]
    state, estimators, key = jax.tree.map(
        lambda *x: jnp.stack(x), *((s, one, k[1]) for s, k in zip(states, keys, strict=True))
    )
    steps, totals = horizon // window, []
    for _ in range(2):  # the first unroll brings runs to where they are in meta-training
        state, _ = advance(problem, estimators, adds.update, state, steps, key=key, at_most=steps)
        totals.append(state.memory)
    gradient = jax.tree.map(lambda a, b: np.asarray(b - a, np.float64) / steps, *totals)
    parts = {"all": gradient, "scalars": gradient.scalars}
    parts |= {"trunk": gradient.trunk, "last layer": gradient.head} if kind != "sgdm" else {}
    return {
        "task": name,
        "kind": kind,
        "theta": where,
        "form": form,
        "estimator": estimator,
        "sigma": sigma,
        "copies": copies,
        "pairs": pairs,
        "window": window,
        "horizon": horizon,
        "parts": {part: _signal_and_noise(tree, copies) for part, tree in parts.items()},
    }


def _zeros(params: Any) -> Any:
    return jax.tree.map(jnp.zeros_like, params)


def _add(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
    """Stay, and add up gradients."""
    return _zeros(updates), jax.tree.map(jnp.add, state, updates)


def _signal_and_noise(tree: Any, copies: int) -> dict[str, float]:
    rows = np.concatenate([x.reshape(copies, -1) for x in jax.tree.leaves(tree)], axis=1)
    noise = float(rows.var(axis=0, ddof=1).sum())
    signal = float(np.square(rows.mean(axis=0)).sum()) - noise / copies
    return {"parameters": rows.shape[1], "signal": signal, "noise": noise}


def report(rows: list[dict[str, Any]]) -> str:
    """A table of ratios of signal to noise; below zero, there is less signal than can be seen."""
    parts = ("all", "scalars", "trunk", "last layer")
    lines = [
        f"| task | optimizer | θ | form | estimator | σ | {' | '.join(parts)} |",
        "|" + "---|" * (6 + len(parts)),
    ]
    for r in rows:
        cells = []
        for part in parts:
            found = r["parts"].get(part)
            ratio = found and found["signal"] / found["noise"]
            cells.append(f"{ratio:.3f} ({found['parameters']:,})" if found else "")
        words = [r[name] for name in ("task", "kind", "theta", "form", "estimator")]
        words += [f"{r['sigma']}", *cells]
        lines.append(f"| {' | '.join(words)} |")
    return "\n".join(lines)
