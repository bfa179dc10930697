"""`forebay show`: everything that is known about a request."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from forebay._units import duration, size
from forebay.cli.output import colored, say, say_json, wants_color
from forebay.cli.parser import command, talking
from forebay.cli.session import session

EXAMPLES = """\
  forebay show @last            the newest request
  forebay show 0a3 --json       the beginning of an id is enough"""

_LEFT_OUT = ("schema", "runs", "decisions", "next", "failure", "reason")


def add(commands: Any) -> None:
    """Add the command to the command line."""
    parser = command(commands, "show", run, examples=EXAMPLES)
    talking(parser)
    parser.add_argument("id", help="of a request, its beginning, or @last")


def run(options: argparse.Namespace) -> int:
    """Print it."""
    with session(options) as client:
        known = client.get(options.id).show()
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
    return 0


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
