"""A parser that knows the nearest name for a mistyped one, and ends its help with examples."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from forebay.cli.commands import COMMANDS
from forebay.errors import ConfigError

_CHOICE = re.compile(r"invalid choice: '(?P<given>[^']*)' \(choose from (?P<known>.*)\)")
_MISSING = "the following arguments are required"
_UNKNOWN = re.compile(r"unrecognized arguments: (?P<given>\S+)")


class UsageError(ConfigError):
    """The command line is wrong; nothing was done."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser without abbreviations, whose mistakes are raised as UsageError."""

    _given: Sequence[str] = ()
    options: frozenset[str] = frozenset()
    """The options of all commands made so far: a mistyped one may mean any of them."""

    def __init__(self, *, examples: str = "", **settings: Any) -> None:
        epilog = f"examples:\n{examples}" if examples else None
        formatter = argparse.RawDescriptionHelpFormatter
        super().__init__(allow_abbrev=False, formatter_class=formatter, epilog=epilog, **settings)

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        """As of any parser; remembers the options."""
        Parser.options |= {name for name in names if name.startswith("--")}
        return super().add_argument(*names, **settings)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As of any parser; remembers the words, for messages about mistakes."""
        self._given = [] if args is None else list(args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Raise the message, with the nearest name if there is one."""
        if message.startswith(_MISSING):
            message += self._mistyped()
        raise UsageError(f"{message}{self._hint(message)}; see: {self.prog} --help")

    def _mistyped(self) -> str:
        """Unknown options that were given, one of which may be meant for a missing one."""
        words = (word.partition("=")[0] for word in self._given)
        unknown = [it for it in words if it.startswith("--") and len(it) > 2]
        unknown = [it for it in unknown if it not in self._option_string_actions]
        return f"; unrecognized arguments: {unknown[0]}" if unknown else ""

    def _hint(self, message: str) -> str:
        import difflib  # without other names there is no mistyped one

        known: list[str] | frozenset[str] = Parser.options
        found = _CHOICE.search(message)
        if found:
            known = re.findall(r"'([^']*)'", found["known"])
        else:
            found = _UNKNOWN.search(message)
        near = difflib.get_close_matches(found["given"], known, 1) if found else []
        return f"; did you mean {near[0]!r}?" if near else ""


def command(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    *,
    description: str = "",
    examples: str,
    **settings: Any,
) -> Parser:
    """The parser of a command, with its summary as help; `run` gets the options."""
    summary = COMMANDS[name].summary
    parser: Parser = commands.add_parser(
        name,
        help=summary,
        description=description or f"{summary[0].upper()}{summary[1:]}.",
        examples=examples,
        **settings,
    )
    parser.set_defaults(run=run)
    return parser


def common(parser: Parser, *, path: bool = True) -> None:
    """Options that commands have in common."""
    parser.add_argument("--json", action="store_true", help="print JSON: an object a line")
    if path:
        parser.add_argument(
            "--path",
            metavar="SOCKET",
            help="socket of the shared pool (default: FOREBAY_POOL_PATH, or the usual one)",
        )


def seconds(text: str) -> float:
    """A time on the command line; a number without a unit is in seconds.

    Raises:
        ArgumentTypeError: it is not a time.
    """
    from forebay.config import parse_seconds

    try:
        return parse_seconds(float(text) if text.replace(".", "", 1).isdecimal() else text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def talking(parser: Parser) -> None:
    """Options of commands that speak to a server."""
    parser.add_argument(
        "--url", help="of the server: https://host:port, unix:///path (default: FOREBAY_URL)"
    )
    parser.add_argument(
        "--token-file", metavar="FILE", help="of https://: holds what `forebay token add` printed"
    )
    parser.add_argument(
        "--ca-file", metavar="FILE", help="of https://: verifies it, instead of the system's CAs"
    )
    parser.add_argument(
        "--app",
        metavar="TARGET",
        help="whose server: tune.py:app, package.module:app (default: FOREBAY_APP, forebay.toml,"
        " the server that was started last)",
    )
    parser.add_argument(
        "--timeout", type=seconds, metavar="TIME", help="give up after so long, such as 30s"
    )
    common(parser, path=False)
    parser.add_argument("--quiet", action="store_true", help="print results only")
    parser.add_argument("-v", "--verbose", action="count", default=0, help="log what happens")
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="on a terminal, unless NO_COLOR is set (auto)",
    )
