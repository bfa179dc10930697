"""`forebay prune`: remove ended requests."""

from __future__ import annotations

import argparse
from typing import Any

from forebay._units import size
from forebay.cli.output import say, say_json
from forebay.cli.parser import command, talking
from forebay.cli.session import session

EXAMPLES = """\
  forebay prune --older-than 2d --dry-run     what would go
  forebay prune --older-than 2d
  forebay prune --status failed --status cancelled
  forebay prune 0a3 0a4"""


def add(commands: Any) -> None:
    """Add the command to the command line."""
    parser = command(commands, "prune", run, examples=EXAMPLES)
    talking(parser)
    parser.add_argument("ids", nargs="*", metavar="ID", help="only these")
    parser.add_argument("--older-than", metavar="TIME", help="ended so long ago, such as 7d or 12h")
    parser.add_argument(
        "--status",
        action="append",
        choices=("succeeded", "failed", "cancelled", "dead"),
        help="only those that ended so",
    )
    parser.add_argument("--all", action="store_true", help="every request that has ended")
    parser.add_argument("--dry-run", action="store_true", help="only count them")


def run(options: argparse.Namespace) -> int:
    """Remove them; prints how many, and how much room that made."""
    from forebay.cli.parser import UsageError

    if not (options.ids or options.older_than or options.status or options.all):
        raise UsageError("say which: ID, --older-than, --status or --all; forebay prune --help")
    with session(options) as client:
        ids = [client.get(one).id for one in options.ids] or None
        done = client.prune(
            older_than=options.older_than, status=options.status, ids=ids, dry_run=options.dry_run
        )
    if options.json:
        say_json(done)
    else:
        would = "would go" if options.dry_run else "removed"
        say(f"{done['pruned']} requests, {size(done['bytes'])} {would}")
    return 0
