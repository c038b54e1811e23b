"""`unf completion`: what a shell needs to complete commands and options."""

from dataclasses import dataclass

from .._option import option
from ._command import Command
from ._shared import require

SHELLS = ("bash", "zsh", "tcsh")


@dataclass(frozen=True, kw_only=True)
class Completion(Command):
    """Print a script that completes commands and options in a shell."""

    examples = """\
  unf completion bash > ~/.local/share/bash-completion/completions/unf
  unf completion zsh > ~/.zfunc/_unf       (a folder of fpath)
"""
    shell: str = option(help="which shell", choices=SHELLS, positional=True)

    def run(self) -> int:
        """Print it."""
        require(["shtab"], "completion")
        import shtab

        from ._main import parser  # which knows this command too

        print(shtab.complete(parser(), self.shell))
        return 0


COMMANDS: dict[str, type[Command]] = {"completion": Completion}
