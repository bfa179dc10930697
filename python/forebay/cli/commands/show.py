"""`forebay show`: everything that is known about a request."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any, Final

from forebay._units import duration, size
from forebay.cli.output import colored, note, say, say_json, wants_color
from forebay.cli.parser import command, talking
from forebay.cli.session import session

if TYPE_CHECKING:
    from forebay.executor import Client

EXAMPLES = """\
  forebay show @last            the newest request
  forebay show 0a3 --json       the beginning of an id is enough
  forebay show 0a3 --tree       with the requests that it submitted, and theirs"""

TREE_MAX: Final = 1_000
"""Requests that a tree shows."""

_LEFT_OUT = ("schema", "runs", "decisions", "next", "failure", "reason")


def add(commands: Any) -> None:
    """Add the command to the command line."""
    parser = command(commands, "show", run, examples=EXAMPLES)
    talking(parser)
    parser.add_argument("id", help="of a request, its beginning, or @last")
    parser.add_argument(
        "--tree",
        action="store_true",
        help=f"with the requests that it submitted, and theirs, {TREE_MAX:,} at most",
    )


def run(options: argparse.Namespace) -> int:
    """Print it."""
    with session(options) as client:
        known = client.get(options.id).show()
        if options.tree:
            known["children"] = _children(client, known["id"], [TREE_MAX])
    children = [] if options.json else known.pop("children", [])
    if options.json:
        say_json(known)
        return 0
    color = wants_color(options.color, sys.stdout)
    width = max(len(name) for name in known)
    for name, value in known.items():
        if name not in _LEFT_OUT and value not in (None, "", [], {}):
            text = _text(name, value)
            say(f"{name:<{width}}  {colored(text, str(value), on=color)}")
    failure = known.get("failure")
    if known.get("reason"):
        say(f"{'reason':<{width}}  {known['reason']}")
    if failure:
        from forebay._failures import failure_text

        say(f"{'failure':<{width}}  {failure_text(failure)}")
    for run_ in known.get("runs") or ():
        say(f"{'run ' + str(run_['attempt']):<{width}}  {_ended(run_)}")
    if failure and failure.get("trace"):
        say(f"\n{failure['trace'].rstrip()}")
    if known.get("next"):
        say(f"{'next':<{width}}  {known['next']}")
    if children:
        say("")
        _say_tree(children, "", color=color)
        if _count(children) >= TREE_MAX:
            note(f"forebay: the tree is cut at {TREE_MAX:,} requests; see more with ps --parent ID")
    return 0


def _children(client: Client, id_: str, room: list[int]) -> list[dict[str, Any]]:
    """What a request submitted, in that order, each with its own `children`."""
    rows = client.list(parent=id_, limit=room[0]) if room[0] > 0 else []
    room[0] -= len(rows)
    children = list(reversed(rows))
    for one in children:
        one["children"] = _children(client, one["id"], room)
    return children


def _count(children: list[dict[str, Any]]) -> int:
    return len(children) + sum(_count(one["children"]) for one in children)


def _say_tree(children: list[dict[str, Any]], margin: str, *, color: bool) -> None:
    for number, one in enumerate(children, 1):
        branch, below = ("└─ ", "   ") if number == len(children) else ("├─ ", "│  ")
        status = colored(f"{one['status']:<9}", one["status"], on=color)
        say(f"{margin}{branch}{one['id']}  {status}  {one['name']}")
        _say_tree(one["children"], margin + below, color=color)


def _text(name: str, value: Any) -> str:
    if name.endswith("_s"):
        return duration(value)
    if name.endswith("_bytes"):
        return size(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _ended(run_: dict[str, Any]) -> str:
    from forebay._failures import failure_text

    told = failure_text(run_["failure"]) if run_.get("failure") else "ended"
    return f"{run_.get('ended_at') or ''}  {told}".strip()
