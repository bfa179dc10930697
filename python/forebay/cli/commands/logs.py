"""`forebay logs`: what a request wrote to stdout and stderr."""

from __future__ import annotations

import argparse
from typing import Any

from forebay.cli.output import put, say_json
from forebay.cli.parser import command, talking
from forebay.cli.session import session

EXAMPLES = """\
  forebay logs @last
  forebay logs -f 0a3          as it is written, until the request ends
  forebay logs -f --json 0a3   an object for each piece"""


def add(commands: Any) -> None:
    """Add the command to the command line."""
    parser = command(
        commands,
        "logs",
        run,
        description="Print what a request wrote. With -f the exit code is that of the request.",
        examples=EXAMPLES,
    )
    talking(parser)
    parser.add_argument("id", help="of a request, its beginning, or @last")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until it ends")


def run(options: argparse.Namespace) -> int:
    """Print it; with `--follow` until the request ends."""
    from forebay.cli.exit_codes import INTERRUPTED, code_of_end
    from forebay.cli.following import say_how_to_go_on

    with session(options) as client:
        request = client.get(options.id)
        try:
            for piece in request.logs(follow=options.follow):
                _print(piece, request.id, as_json=options.json)
            if not options.follow:
                return 0
            error = request.exception()
        except KeyboardInterrupt:
            say_how_to_go_on([request], options)
            return INTERRUPTED
        return code_of_end(request.status(), error)


def _print(piece: str, id_: str, *, as_json: bool) -> None:
    if as_json:
        say_json({"id": id_, "text": piece})
    else:
        put(piece, is_log=True)
