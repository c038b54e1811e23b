"""The command line: a parser made from commands."""

import argparse
import difflib
from argparse import SUPPRESS
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ._command import Command, Option, options_of


class Parser(argparse.ArgumentParser):
    """Shows examples as they were written, and guesses what a misspelt word was to be."""

    def __init__(self, **more: Any):
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **more
        )

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """As usual, but unknown options are compared with those there are."""
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            parser = getattr(found, "_parser", self)
            parser.error(f"unrecognized arguments: {' '.join(unknown)}{parser.guess(unknown)}")
        return found

    def guess(self, unknown: list[str]) -> str:
        """What the first unknown word may have been meant to be."""
        known = [flag for action in self._actions for flag in action.option_strings]
        close = difflib.get_close_matches(unknown[0].partition("=")[0], known, 1)
        return f" (did you mean {close[0]}?)" if close else ""


def make_parser(
    commands: Mapping[str, type[Command]],
    families: Mapping[str, str],
    *,
    description: str,
    epilog: str,
    version: str,
) -> Parser:
    """A parser whose result has the options that were given, and `_name`, the command's.

    It requires none: those without default may be in a file.

    Args:
        commands: by the words that call them, such as "zoo info".
        families: what the first words of several commands have in common.
        description: of everything.
        epilog: what follows the list of commands.
        version: for `--version`.
    """
    parser = Parser(prog="unf", description=description, epilog=epilog)
    parser.add_argument("--version", action="version", version=version)
    places = {"": _place(parser)}
    for name, command in commands.items():
        words = name.split()
        for depth in range(1, len(words)):
            family = " ".join(words[:depth])
            if family not in places:
                above = places[" ".join(words[: depth - 1])]
                text = families[family]
                members = [c for other, c in commands.items() if other.startswith(f"{family} ")]
                examples = dict.fromkeys(member.examples for member in members)
                one = above.add_parser(
                    words[depth - 1], help=text, description=_sentence(text),
                    epilog=_examples("".join(examples)),
                )  # fmt: skip
                places[family] = _place(one)
        _add_command(places[" ".join(words[:-1])], name, command)
    return parser


def _place(parser: Any) -> Any:
    return parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)


def _add_command(place: Any, name: str, command: type[Command]) -> None:
    options = options_of(command)
    needed = [_usage(option) for option in options if option.required]
    summary, _, more = (command.__doc__ or "").partition("\n")
    text = summary.rstrip(".")
    parser = place.add_parser(
        name.split()[-1],
        help=text[0].lower() + text[1:],
        usage=" ".join(["unf", name, *needed, "[options]"]),
        description=f"{summary}\n{_unindented(more)}".strip(),
        epilog=_examples(command.examples),
    )
    parser.set_defaults(_name=name, _parser=parser)
    groups: dict[str, Any] = {}
    for option in options:
        title = option.group.metadata["title"] if option.group else ""
        if title and title not in groups:
            groups[title] = parser.add_argument_group(title)
        _add_option(groups.get(title, parser), option)
    parser.add_argument(
        "--config",
        dest="_config",
        type=Path,
        metavar="FILE",
        help="a TOML file with options, such as the one beside results; "
        "those given here count more",
    )


def _usage(option: Option) -> str:
    if option.field.metadata.get("positional"):
        return _metavar(option) + (" …" if option.several else "")
    return f"{option.shown} {_metavar(option)}"


def _add_option(place: Any, option: Option) -> None:
    about = option.field.metadata
    words: dict[str, Any] = {"default": SUPPRESS, "help": _help(option)}
    if about.get("positional"):
        words |= {"nargs": "*" if option.several else "?", "default": None}
        names = (option.name,)
    else:
        names = about.get("names", (option.shown,))
        words["dest"] = option.name
    if option.kind is bool:
        undone = not about.get("passing")  # what a file says
        words["action"] = argparse.BooleanOptionalAction if undone else "store_true"
    else:
        words |= {"type": _named(option), "metavar": _metavar(option)}
        words |= {"choices": about["choices"]} if "choices" in about else {}
    if "bare" in about:
        words |= {"nargs": "?", "const": about["bare"]}
    place.add_argument(*names, **words)


def _named(option: Option) -> Any:
    """The function that reads a word, named for messages."""

    def read(text: str) -> Any:
        return option.read(text)

    kind = option.kind.__name__
    read.__name__ = f"comma-separated {kind}s" if option.several else kind
    return read


def _metavar(option: Option) -> str:
    about = option.field.metadata
    if "metavar" in about:
        return about["metavar"]
    if "choices" in about:
        return "{" + ",".join(about["choices"]) + "}"
    if about.get("positional"):
        return option.name.upper()
    return "A,B,…" if option.several else option.kind.__name__.upper()


def _help(option: Option) -> str:
    text = option.field.metadata.get("help", "").replace("%", "%%")
    default = option.field.default
    if option.required or default is None or default is False or default == ():
        return text
    shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
    return f"{text} (default: {shown})".strip()


def _examples(text: str) -> str | None:
    return f"examples:\n{text}" if text else None


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _unindented(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines())
