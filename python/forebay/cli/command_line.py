"""The command line: which command, and how its end becomes an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from forebay.cli.commands import COMMANDS
from forebay.cli.exit_codes import INTERRUPTED, code_of, error_text
from forebay.cli.output import note, spell_out
from forebay.cli.parser import Parser
from forebay.errors import Error

EXAMPLES = """\
  forebay run tune.py:tune --budget 80   run a request, see its log and its bars, get its result
  forebay submit tune --budget 80        leave it to the server; prints the id
  forebay ps                             what waits, runs and has ended
  forebay why @last                      why it waits or died, and what to do
  forebay serve                          lend warm services to your programs
  forebay doctor                         what works here, and what to change"""


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


def _version() -> int:
    from importlib.metadata import version

    from forebay.cli.output import say

    say(version("forebay"))
    return 0
