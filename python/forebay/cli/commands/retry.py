"""`forebay retry`: queue ended requests again."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from forebay.cli.output import say, say_json
from forebay.cli.parser import command, talking
from forebay.cli.session import session

if TYPE_CHECKING:
    from forebay.executor import Client

EXAMPLES = """\
  forebay retry @last
  forebay retry 0a3 0a4
  forebay retry --dead          everything that was set aside"""

AT_ONCE = 1000
"""Requests that one call to the server names."""


def add(commands: Any) -> None:
    """Add the command to the command line."""
    parser = command(
        commands,
        "retry",
        run,
        description="Queue requests again that failed, were cancelled or were set aside.",
        examples=EXAMPLES,
    )
    talking(parser)
    parser.add_argument("ids", nargs="*", metavar="ID", help="of a request, or @last")
    for state in ("failed", "dead"):
        parser.add_argument(
            f"--{state}",
            dest="states",
            action="append_const",
            const=state,
            help=f"all that are {state}",
        )


def run(options: argparse.Namespace) -> int:
    """Queue them; 1 if one was not in a state to be queued."""
    from forebay.cli.parser import UsageError

    if not options.ids and not options.states:
        raise UsageError("name requests, or give --failed or --dead; see: forebay retry --help")
    with session(options) as client:
        refused = False
        for ids in _wanted(client, options):
            done = client.ask("retry", ids)
            _tell(done, options)
            refused |= any(one.get("refused") for one in done)
    return 1 if refused else 0


def _wanted(client: Client, options: argparse.Namespace) -> Iterator[list[str]]:
    """The ids of the requests to queue, as many at a time as one call may name."""
    ids = [client.get(one).id for one in options.ids]
    for start in range(0, len(ids), AT_ONCE):
        yield ids[start : start + AT_ONCE]
    before = None
    while options.states and (
        page := client.list(status=options.states, limit=AT_ONCE, before=before)
    ):
        yield [one["id"] for one in page]
        before = page[-1]["id"]  # the oldest id; the next page begins after it


def _tell(done: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """Print the outcome for each."""
    for one in done:
        if options.json:
            say_json(one)
        elif one.get("refused"):
            say(f"{one['id']} not queued: {one['refused']}")
        elif not options.quiet:
            say(f"{one['id']} {one.get('status', 'queued')}")
