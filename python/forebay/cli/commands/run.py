"""`forebay run`: submit a request, watch it, print its result."""

from __future__ import annotations

import argparse
from typing import Any

from forebay.cli.following import follow, following
from forebay.cli.session import session
from forebay.cli.submission import add_submission, say_id, submit, submitting

EXAMPLES = """\
  forebay run digits.py:classify --index 7    starts a server of digits.py where none runs
  forebay run classify --index 7              by name, of the server that was started last
  forebay run --app digits.py --help          what it can run
  forebay run classify --help                 and with what
  forebay run --async classify --index 7      the same as: forebay submit

Ctrl-C leaves the request running and says how to go on; a second one cancels it."""


def add(commands: Any) -> None:
    """Add the command to the command line."""
    add_submission(
        commands,
        "run",
        own,
        run,
        description="Run a request: its log and progress go to stderr, its result to stdout, and"
        " before that its items where it is a generator, an item a line.",
        examples=EXAMPLES,
    )


def own(parser: Any) -> None:
    """The command's own options, in front of the request's name or behind it."""
    submitting(parser)
    following(parser)
    parser.add_argument("--async", dest="leave", action="store_true", help="print the id and leave")


def run(options: argparse.Namespace) -> int:
    """Submit and follow; the exit code is that of the request."""
    with session(options, start=not options.no_start, waits=True) as client:
        request, gives_items = submit(client, options, "run", own)
        if options.leave:
            say_id(request, options)
            return 0
        return follow(request, options, gives_items=gives_items)
