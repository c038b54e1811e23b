"""Timing compiled functions, and describing the machine they ran on."""

import datetime
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp

from unf import WeightSpace
from unf.basis import Plan, make_plan
from unf.nn import init_coefficients
from unf.testing import random_features

SEED = 0
Layer = Callable[[Plan, Any, Any], Any]


@dataclass(frozen=True)
class Measurement:
    """One compiled function: seconds, bytes and operations.

    `run_s` waits for every result before the next call; `queued_s` is the time per call when
    ten are queued (if short), which hides what the host does between them.
    """

    compile_s: float
    run_s: float
    queued_s: float
    temp_bytes: int
    operations: int


def measure(function: Callable, *args: Any, seconds: float = 3.0) -> Measurement:
    """Compile `function` for `args`, warm up, and take the median of repeated runs."""
    return measure_together({"": function}, *args, seconds=seconds)[""]


def measure_together(
    functions: dict[str, Callable], *args: Any, seconds: float = 3.0
) -> dict[str, Measurement]:
    """The same for several functions, in turns so that whatever the machine does hits all."""
    compiled, compile_s = {}, {}
    for name, function in functions.items():
        start = time.perf_counter()
        compiled[name] = jax.jit(function).lower(*args).compile()
        compile_s[name] = time.perf_counter() - start
    return time_together(compiled, compile_s, *args, seconds=seconds)


def time_together(
    compiled: Mapping[str, Any], compile_s: Mapping[str, float], *args: Any, seconds: float = 3.0
) -> dict[str, Measurement]:
    """The times of compiled functions, in turns."""
    for run in compiled.values():
        jax.block_until_ready(run(*args))
    times: dict[str, list[float]] = {name: [] for name in compiled}
    rounds = 0
    while rounds < 3 or (rounds < 20 and sum(map(sum, times.values())) < seconds * len(times)):
        for name, run in compiled.items():
            times[name] += _block(run, args)
        rounds += 1
    return {
        name: _summary(run, compile_s[name], statistics.median(times[name]), args)
        for name, run in compiled.items()
    }


def _block(run: Any, args: tuple, seconds: float = 0.3) -> list[float]:
    """Runs of one function after the other; the first, which finds another's memory, not timed."""
    jax.block_until_ready(run(*args))
    times: list[float] = []
    while sum(times) < seconds and len(times) < 50:
        start = time.perf_counter()
        jax.block_until_ready(run(*args))
        times.append(time.perf_counter() - start)
    return times


def _summary(run: Any, compile_s: float, run_s: float, args: tuple) -> Measurement:
    queue = 10 if run_s < 0.1 else 1
    start = time.perf_counter()
    jax.block_until_ready([run(*args) for _ in range(queue)])
    queued_s = (time.perf_counter() - start) / queue
    operations = (run.as_text() or "").count(" = ")
    temporary = int(run.memory_analysis().temp_size_in_bytes)
    return Measurement(compile_s, run_s, queued_s, temporary, operations)


def layer_functions(layer: Layer, plan: Plan) -> dict[str, Callable]:
    """Forward pass of a batch, and gradient of its squares by coefficients and inputs."""

    def forward(coefficients, x):
        return jax.vmap(lambda x: layer(plan, coefficients, x))(x)

    def loss(coefficients, x):
        return sum(jnp.sum(y * y) for y in jax.tree.leaves(forward(coefficients, x)))

    return {"forward": forward, "gradient": jax.grad(loss, argnums=(0, 1))}


def layer_arguments(space: WeightSpace, in_channels: int, out_channels: int, batch: int):
    """Random coefficients and a batch of random features."""
    key = jax.random.key(SEED)
    coefficients = init_coefficients(make_plan(space), in_channels, out_channels, key=key)
    keys = jax.random.split(key, batch)
    x = jax.vmap(lambda k: random_features(space, in_channels, key=k))(keys)
    return jax.block_until_ready((coefficients, x))


def machine() -> dict[str, Any]:
    """Where and when: enough to read the numbers by."""
    return {
        "date": datetime.date.today().isoformat(),
        "device": jax.devices()[0].device_kind,
        "platform": platform.machine(),
        "jax": jax.__version__,
        "python": platform.python_version(),
        "seed": SEED,
    }


def as_json(measurements: dict[str, Measurement]) -> dict[str, Any]:
    """Measurements as plain dictionaries."""
    return {name: asdict(measurement) for name, measurement in measurements.items()}
