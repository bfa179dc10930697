"""`forebay items`: what a request has yielded."""

from __future__ import annotations

import argparse
from typing import Any

from forebay.cli.parser import command, talking
from forebay.cli.session import session

EXAMPLES = """\
  forebay items @last
  forebay items -f 0a3               as they come, until the request ends
  forebay items -f 0a3 --after 57    behind the last one that you had
  forebay items -f --json 0a3        with their numbers and epochs, an object a line"""


def add(commands: Any) -> None:
    """Add the command to the command line."""
    parser = command(
        commands,
        "items",
        run,
        description="Print what a generator has yielded, an item a line."
        " With -f the exit code is that of the request.",
        examples=EXAMPLES,
    )
    talking(parser)
    parser.add_argument("id", help="of a request, its beginning, or @last")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until it ends")
    parser.add_argument(
        "--after", type=int, default=0, metavar="N", help="only those behind this number"
    )
    parser.add_argument(
        "--epoch", type=int, metavar="E", help="whose number that is: say if another has begun"
    )


def run(options: argparse.Namespace) -> int:
    """Print them; with `--follow` until the request ends."""
    from forebay.cli.exit_codes import INTERRUPTED, code_of_end
    from forebay.cli.following import say_how_to_go_on
    from forebay.cli.items import say_items
    from forebay.errors import Error

    with session(options) as client:
        request = client.get(options.id)
        items = request.items(options.after, epoch=options.epoch, follow=options.follow)
        try:
            try:
                say_items(items, request.id, options)
            except Error as error:
                if not options.follow or error is not request.exception():
                    raise
            if not options.follow:
                return 0
            return code_of_end(request.status(), request.exception())
        except KeyboardInterrupt:
            say_how_to_go_on([request], options)
            return INTERRUPTED
