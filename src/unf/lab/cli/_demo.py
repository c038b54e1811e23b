"""`unf demo`: a first job, from nothing, in a minute."""

import time
from dataclasses import dataclass
from pathlib import Path

from .._option import option
from ..demo import Config, run
from ._command import Command, OptionError
from ._shared import require


@dataclass(frozen=True, kw_only=True)
class Demo(Command):
    """Predict how accurate small networks are, from their weights alone."""

    examples = "  unf demo                      (two CPU cores, a minute)\n"
    results_are_a_file = True
    networks: int = option(Config.networks, "how many networks to train")
    repeats: int = option(Config.repeats, "training runs of each predictor")
    seed: int = option(Config.seed, "of everything random")
    out: Path = option(Config.out, "folder for the picture", metavar="DIR")

    def results(self) -> Path:
        """The picture."""
        return self.out / "demo.png"

    def run(self) -> int:
        """Train networks and predictors, print scores, draw."""
        require(["matplotlib"], "plots")
        started = time.perf_counter()
        try:
            run(Config(networks=self.networks, repeats=self.repeats, seed=self.seed, out=self.out))
        except ValueError as error:
            raise OptionError(str(error)) from error
        print(f"{time.perf_counter() - started:.0f} s in all")
        return 0


COMMANDS: dict[str, type[Command]] = {"demo": Demo}
