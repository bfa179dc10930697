"""`forebay submit`: leave a request to the server."""

from __future__ import annotations

import argparse
from typing import Any

from forebay.cli._parser import Parser, command
from forebay.cli._session import session

EXAMPLES = """\
  forebay submit launch --name job-1          prints the id, once the request is on disk
  forebay submit digits.py:classify --index 7
  id=$(forebay submit launch --name job-1); forebay wait $id
  forebay submit report --after $id --delay 5min"""


def add(commands: Any) -> None:
    """Add the command to the command line."""
    from forebay.cli._submission import words

    parser = command(
        commands,
        "submit",
        lambda options: run(parser, options),
        description="Submit a request and print its id alone, for scripts.",
        examples=EXAMPLES,
        add_help=False,
    )
    own(parser)
    words(parser)


def own(parser: Any) -> None:
    """The command's own options, in front of the request's name or behind it."""
    from forebay.cli._submission import submitting

    submitting(parser)


def run(parser: Parser, options: argparse.Namespace) -> int:
    """Submit, and print the id when the request is on disk."""
    from forebay.cli._output import say, say_json
    from forebay.cli._submission import help_wanted, settle, show_request_help, submit

    if help_wanted(parser, options) or show_request_help(options, "submit", own):
        return 0
    settle(options)
    with session(options, start=not options.no_start) as client:
        request = submit(client, options, "submit", own)
        if options.json:
            say_json({"id": request.id, "name": request.name})
        else:
            say(request.id)
    return 0
