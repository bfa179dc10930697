"""`forebay run`: submit a request, watch it, print its result."""

from __future__ import annotations

import argparse
from typing import Any

from forebay.cli._parser import Parser, command
from forebay.cli._session import session

EXAMPLES = """\
  forebay run digits.py:classify --index 7    starts a server of digits.py where none runs
  forebay run classify --index 7              by name, of the server that was started last
  forebay run --app digits.py --help          what it can run
  forebay run classify --help                 and with what
  forebay run --async classify --index 7      the same as: forebay submit

Ctrl-C leaves the request running and says how to go on; a second one cancels it."""


def add(commands: Any) -> None:
    """Add the command to the command line."""
    from forebay.cli._submission import words

    parser = command(
        commands,
        "run",
        lambda options: run(parser, options),
        description="Run a request: its log and progress go to stderr, its result to stdout.",
        examples=EXAMPLES,
        add_help=False,
    )
    own(parser)
    words(parser)


def own(parser: Any) -> None:
    """The command's own options, in front of the request's name or behind it."""
    from forebay.cli._following import following
    from forebay.cli._submission import submitting

    submitting(parser)
    following(parser)
    parser.add_argument("--async", dest="leave", action="store_true", help="print the id and leave")


def run(parser: Parser, options: argparse.Namespace) -> int:
    """Submit and follow; the exit code is that of the request."""
    from forebay.cli._following import follow
    from forebay.cli._output import say, say_json
    from forebay.cli._submission import help_wanted, settle, show_request_help, submit

    if help_wanted(parser, options) or show_request_help(options, "run", own):
        return 0
    settle(options)
    with session(options, start=not options.no_start, waits=True) as client:
        request = submit(client, options, "run", own)
        if options.leave:
            if options.json:
                say_json({"id": request.id, "name": request.name})
            else:
                say(request.id)
            return 0
        return follow(request, options)
