"""The demo as a command."""

import argparse
import importlib.util
import time
from pathlib import Path

from . import Config, run


def main() -> None:
    """The command."""
    started = time.perf_counter()
    parser = argparse.ArgumentParser(
        prog="python -m unf.experiments.demo",
        description="Predict how accurate small networks are, from their weights alone.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    option = parser.add_argument
    option("--networks", type=int, default=Config.networks, help="how many networks to train")
    option("--repeats", type=int, default=Config.repeats, help="training runs of each predictor")
    option("--seed", type=int, default=Config.seed, help="of everything random")
    option("--out", type=Path, default=Config.out, help="folder for the picture")
    config = Config(**vars(parser.parse_args()))
    if importlib.util.find_spec("matplotlib") is None:
        remedy = "pip install 'universal-neural-functionals[plots]'"
        parser.error(f"matplotlib not installed; run: {remedy}")
    run(config)
    print(f"{time.perf_counter() - started:.0f} s in all")


if __name__ == "__main__":
    main()
