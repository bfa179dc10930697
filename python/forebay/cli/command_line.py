"""The command line: which command, and how its end becomes an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from forebay.cli.commands import COMMANDS
from forebay.cli.exit_codes import INTERRUPTED, code_of, error_text
from forebay.cli.output import note, spell_out
from forebay.cli.parser import Parser, UsageError
from forebay.errors import Error

EXAMPLES = """\
  forebay run tune.py:tune --budget 80   run a request, see its log and its bars, get its result
  forebay submit tune --budget 80        leave it to the server; prints the id
  forebay ps                             what waits, runs and has ended
  forebay why @last                      why it waits or died, and what to do
  forebay serve                          lend warm services to your programs
  forebay doctor                         what works here, and what to change
  forebay --url https://host:port ps     of a server elsewhere, by its gateway"""


WHOSE: Final = ("--url", "--token-file", "--ca-file")
"""Options that may stand before the name of the command too."""


def parser(chosen: str | None = None, *, every: bool = False) -> Parser:
    """The parser of the whole command.

    Args:
        chosen: the command whose module is loaded; the others have only a name here.
        every: load all.
    """
    top = Parser(
        prog="forebay",
        description="Keep slow-starting Python, or any program, warm in a process of its own.",
        examples=EXAMPLES,
    )
    top.add_argument("--version", action="store_true", help="print the version and leave")
    commands = top.add_subparsers(metavar="COMMAND", dest="command")
    for name, command in COMMANDS.items():
        if every or name == chosen:
            import_module(command.module).add(commands)
        else:
            commands.add_parser(name, help=command.summary, add_help=False)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: of the command line; default: this process's.

    Returns:
        The exit code.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    spell_out()
    try:
        return _run(given)
    except Error as error:
        note(error_text(error, as_json="--json" in given))
        return code_of(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has left; the interpreter would report that while it ends.
        sys.stdout = None
        return 0


def _run(given: list[str]) -> int:
    given = _behind_command(given)
    chosen = next((word for word in given if not word.startswith("-")), None)
    top = parser(chosen)
    options = top.parse_args(given)
    if options.version:
        return _version()
    if options.command is None:
        top.print_help(sys.stderr)
        return 2
    code: int = options.run(options)
    return code


def _behind_command(given: list[str]) -> list[str]:
    """The words of the command line with what says whose server it is behind the command's name.

    Raises:
        UsageError: the command is about this machine, and such an option is given.
    """
    front: list[str] = []
    rest = list(given)
    while rest and rest[0].partition("=")[0] in WHOSE:
        count = 1 if "=" in rest[0] else 2
        front += rest[:count]
        rest = rest[count:]
    chosen = COMMANDS.get(rest[0]) if rest else None
    named = [word for word in (front or rest) if word.partition("=")[0] in WHOSE]
    if chosen is not None and chosen.is_local and named:
        option = named[0].partition("=")[0]
        raise UsageError(f"forebay {rest[0]} is about this machine; leave {option} out")
    return [*rest[:1], *front, *rest[1:]]


def _version() -> int:
    from importlib.metadata import version

    from forebay.cli.output import say

    say(version("forebay"))
    return 0
