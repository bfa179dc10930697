"""The command line: which command, and how its end becomes an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from forebay.cli import _doctor, _pool, _serve
from forebay.cli._exit import INTERRUPTED, code_of, error_text
from forebay.cli._output import note
from forebay.cli._parser import Parser
from forebay.errors import Error

EXAMPLES = """\
  forebay serve                          lend warm services to your programs
  forebay pool ls                        what is warm, and who uses it
  forebay pool warm app.models:Digits    have one ready before it is asked for
  forebay doctor                         what works here, and what to change"""


def parser() -> Parser:
    """The parser of the whole command."""
    top = Parser(
        prog="forebay",
        description="Keep slow-starting Python, or any program, warm in a process of its own.",
        examples=EXAMPLES,
    )
    top.add_argument("--version", action="store_true", help="print the version and leave")
    commands = top.add_subparsers(metavar="COMMAND", dest="command")
    for module in (_serve, _pool, _doctor):
        module.add(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: of the command line; default: this process's.

    Returns:
        The exit code.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        top = parser()
        options = top.parse_args(given)
        if options.version:
            return _version()
        if options.command is None:
            top.print_help(sys.stderr)
            return 2
        code: int = options.run(options)
        return code
    except Error as error:
        note(error_text(error, as_json="--json" in given))
        return code_of(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has enough; the interpreter would complain while it ends.
        sys.stdout = None
        return 0


def _version() -> int:
    from importlib.metadata import version

    from forebay.cli._output import say

    say(version("forebay"))
    return 0
