"""Run the benchmarks: `python -m benchmarks [SUITE ...] [--out DIR]`."""

import argparse
import json
from itertools import product
from pathlib import Path

import jax

from . import (
    ablation,
    align,
    device,
    estimates,
    growth,
    literal,
    lopt,
    orders,
    predictors,
    profile,
    readers,
    real,
    scaling,
    sharding,
    startup,
    tied,
    update,
    zoo,
)
from ._measure import machine

SUITES = (
    "literal",
    "profile",
    "growth",
    "real",
    "readers",
    "predictors",
    "tied",
    "update",
    "infer",
    "zoo",
    "lopt",
    "estimates",
    "ablation",
    "orders",
    "align",
    "device",
    "scaling",
    "sharding",
    "startup",
)


def main() -> None:
    """Measure the chosen suites, print tables as they are ready, and write JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"any of {', '.join(SUITES)}")
    parser.add_argument(
        "--out", type=Path, default=Path("out"), help="folder for benchmarks-*.json"
    )
    parser.add_argument(
        "--only",
        default="",
        help="literal, profile, readers, predictors, lopt, estimates, ablation, align, tied, "
        "update: only cases that have this in their name",
    )
    parser.add_argument("--gradient", action="store_true", help="real: gradients too")
    options = parser.parse_args()
    unknown = set(options.suites) - set(SUITES)
    if unknown:
        parser.error(f"unknown suite {sorted(unknown)[0]!r}: choose from {', '.join(SUITES)}")
    options.out.mkdir(parents=True, exist_ok=True)
    if "sharding" in options.suites:  # before anything starts the devices
        jax.config.update("jax_num_cpu_devices", max(sharding.DEVICES))
    print(machine())
    for suite in options.suites or ("infer", "growth", "real", "profile", "literal"):
        rows, text = _run(suite, options)
        print(f"\n{suite}\n\n{text}", flush=True)
        path = options.out / f"benchmarks-{suite}.json"
        path.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")
        print(f"\nwritten to {path}")


def _run(suite: str, options: argparse.Namespace) -> tuple[list, str]:
    rows = []
    if suite == "literal":
        cases = [case for case in literal.CASES if options.only in case.name]
        for case in cases:
            print(f"measuring {case.name} ...", flush=True)
            rows.append(literal.run(case))
            print({kind: round(ratio, 2) for kind, ratio in rows[-1]["ratios"].items()}, flush=True)
        return rows, literal.report(rows)
    if suite == "profile":
        rows = [profile.run(case) for case in literal.CASES if options.only in case.name]
        return rows, profile.report(rows)
    if suite == "infer":
        from . import infer  # needs Flax and Haiku

        rows = [infer.run(name) for name in infer.NETWORKS]
        return rows, infer.report(rows)
    if suite == "scaling":
        rows = [scaling.run(devices) for devices in scaling.DEVICES]
        return rows, scaling.report(rows)
    if suite == "startup":
        rows = startup.run()
        return rows, startup.report(rows)
    if suite == "zoo":
        rows = [zoo.run(*case) for case in zoo.cases()]
        return rows, zoo.report(rows)
    if suite == "lopt":
        for task, kind, seeds in lopt.cases():
            if options.only in f"{task} {kind}":
                print(f"measuring {kind} on {task}, {seeds} at once ...", flush=True)
                rows.append(lopt.run(task, kind, seeds))
        return rows, lopt.report(rows)
    if suite == "estimates":
        for case in estimates.cases():
            if options.only in " ".join(map(str, case)):
                print(f"measuring {case} ...", flush=True)
                rows.append(estimates.run(*case))
                print(estimates.report(rows[-1:]), flush=True)
        return rows, estimates.report(rows)
    if suite == "ablation":
        cases = [case for case in ablation.CASES if options.only in " ".join(case)]
        rows = [ablation.run(*case) for case in cases]
        return rows, ablation.report(rows)
    if suite == "align":
        for network, case in product(align.NETWORKS, align.CASES):
            if options.only in f"{network}, {case}":
                print(f"measuring {network}, {case} ...", flush=True)
                rows.append(align.run(network, case))
        return rows, align.report(rows)
    if suite == "orders":
        rows = orders.run()
        return rows, orders.report(rows)
    if suite == "growth":
        rows = [growth.run(blocks) for blocks in (2, 4, 8, 16)]
        return rows, growth.report(rows)
    if suite == "real":
        kinds = ("forward", "gradient") if options.gradient else ("forward",)
        for name in real.NETWORKS:
            for kind in kinds:
                print(f"measuring {name}, {kind} ...", flush=True)
                rows.append(real.run(name, kind))
        return rows, real.report(rows)
    if suite == "readers":
        models = [name for name in readers.MODELS if options.only in name]
        for name, model, kind in product(readers.NETWORKS, models, ("forward", "gradient")):
            print(f"measuring {name}, {model}, {kind} ...", flush=True)
            rows.append(readers.run(name, model, kind))
        return rows, readers.report(rows)
    if suite == "predictors":
        for network in predictors.NETWORKS:
            models = tuple(x for x in predictors.MODELS if options.only in f"{network} {x}")
            if models:
                print(f"measuring {network} ...", flush=True)
                rows += predictors.run(network, models)
        return rows, predictors.report(rows)
    if suite == "tied":
        for case in tied.cases():
            if options.only in case.name:
                print(f"measuring {case.name} ...", flush=True)
                rows.append(tied.run(case))
        return rows, tied.report(rows)
    if suite == "update":
        for name in update.NETWORKS:
            if options.only in name:
                print(f"measuring {name} ...", flush=True)
                rows.append(update.run(name))
        return rows, update.report(rows)
    if suite == "sharding":
        for kind, count, cut in sharding.CASES:
            print(f"compiling {kind} for {count} devices, leaves cut as {cut} ...", flush=True)
            rows.append(sharding.run(kind, count, cut))
        return rows, sharding.report(rows)
    speeds = device.ceilings()
    rows = [device.run(batch, speeds) for batch in (1, *device.BATCHES)]
    return [speeds, *rows], device.report(rows, speeds)


if __name__ == "__main__":
    main()
