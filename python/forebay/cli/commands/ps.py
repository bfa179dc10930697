"""`forebay ps`: requests and their states."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from forebay._units import duration, since, size
from forebay.cli.output import colored, say, say_json, table, wants_color
from forebay.cli.parser import command, talking
from forebay.cli.session import session, tell

EXAMPLES = """\
  forebay ps                        the newest twenty
  forebay ps --running              with their reasons: forebay ps --queued
  forebay ps --failed --json        an object a line
  forebay ps --name tune -n 100
  forebay ps --since 2026-01-31T12:00:00Z
  forebay ps --parent ID            what a request submitted
  forebay ps --before ID            the next page"""

STATES = ("queued", "running", "succeeded", "failed", "cancelled", "dead")
ROWS = 20


def add(commands: Any) -> None:
    """Add the command to the command line."""
    parser = command(commands, "ps", run, examples=EXAMPLES)
    talking(parser)
    for state in STATES:
        parser.add_argument(
            f"--{state}",
            dest="states",
            action="append_const",
            const=state,
            help=f"only those that are {state}",
        )
    parser.add_argument("--name", help="only those of this name")
    parser.add_argument("--submitter", metavar="NAME", help="only those of this submitter")
    parser.add_argument(
        "--lane", choices=("short", "long", "async"), help="only those of this lane"
    )
    parser.add_argument("--since", metavar="TIME", help="only those accepted at this time or later")
    parser.add_argument("--until", metavar="TIME", help="only those accepted before it")
    parser.add_argument("--parent", metavar="ID", help="only those that this request submitted")
    parser.add_argument("-n", "--limit", type=int, default=ROWS, metavar="N", help=f"rows ({ROWS})")
    parser.add_argument("--before", metavar="ID", help="only those that are older")


def run(options: argparse.Namespace) -> int:
    """List them, the newest first."""
    states = options.states
    if states and "failed" in states:
        states = [*states, "dead"]  # set aside, after it had failed
    with session(options) as client:
        before = options.before and client.get(options.before).id
        parent = options.parent and client.get(options.parent).id
        rows = client.list(
            status=states,
            name=options.name,
            submitter=options.submitter,
            lane=options.lane,
            since=options.since,
            until=options.until,
            parent=parent,
            limit=options.limit,
            before=before,
        )
    if options.json:
        for row in rows:
            say_json(row)
    elif rows:
        say(listing(rows, color=wants_color(options.color, sys.stdout)))
        if len(rows) == options.limit:
            tell(options, f"older ones: forebay ps --before {rows[-1]['id']}")
    else:
        tell(
            options, "no requests" + (f" that are {' or '.join(options.states)}" if states else "")
        )
    return 0


def listing(rows: list[dict[str, Any]], *, color: bool) -> str:
    """Requests as a table."""
    from forebay.executor._internal import why_of

    has_items = any(row.get("yielded") is not None for row in rows)
    counts = ("items",) if has_items else ()
    head = ("id", "name", "status", "age", "ran", "peak", *counts, "why")

    def yielded(row: dict[str, Any]) -> tuple[Any, ...]:
        count = row.get("yielded")
        return ("-" if count is None else count,) if has_items else ()

    return table(
        head,
        [
            (
                row["id"],
                row["name"],
                colored(row["status"], row["status"], on=color),
                duration(since(row.get("accepted_at"))),
                duration(row.get("run_s")),
                size(row.get("peak_bytes")),
                *yielded(row),
                why_of(row),
            )
            for row in rows
        ],
    )
