"""`forebay status`: whether a server runs, and its state."""

from __future__ import annotations

import argparse
from typing import Any

from forebay._units import duration, since, size
from forebay.cli.output import say, say_json
from forebay.cli.parser import command, talking
from forebay.cli.session import session

EXAMPLES = """\
  forebay status              0: it answers; 3: no server is reachable
  forebay status --quiet      the exit code alone, for health checks
  forebay status --json"""


def add(commands: Any) -> None:
    """Add the command to the command line."""
    parser = command(commands, "status", run, examples=EXAMPLES)
    talking(parser)


def run(options: argparse.Namespace) -> int:
    """Ask it."""
    with session(options) as client:
        info = client.info()
    if options.json:
        say_json(info)
    elif not options.quiet:
        for name, text in lines(info):
            say(f"{name:<12}{text}")
    return 0


def lines(info: dict[str, Any]) -> list[tuple[str, str]]:
    """The facts of a server, as names and texts."""
    figures = info.get("figures") or {}
    told = [
        ("application", f"{info.get('app')} ({info.get('target')}), code {info.get('code')}"),
        ("process", f"{info.get('pid')}, {_running_for(info)}"),
        ("state", f"{info.get('state_dir')}, commits: synchronous={info.get('synchronous')}"),
        ("requests", counts(figures)),
        ("memory", memory(figures)),
    ]
    if info.get("http"):
        told.append(("http", str(info["http"])))
    if info.get("engine"):
        told.append(("workers", f"on {info['engine']['cluster']}"))
    if figures.get("cordon"):
        told.append(("cordoned", cordoned(figures["cordon"])))
    if figures.get("held"):
        told.append(("held", str(figures["held"])))
    if info.get("fault"):
        told.append(("fault", str(info["fault"])))
    if info.get("draining"):
        told.append(("draining", "accepts nothing more, and ends when what runs has ended"))
    return told


def cordoned(cordon: dict[str, Any]) -> str:
    """Who let the server take no submissions, for how long, and how that is undone."""
    lasts = duration(since(cordon.get("at")))
    return f"{cordon.get('text')}; for {lasts}; undo it with: forebay cordon --undo"


def counts(figures: dict[str, Any]) -> str:
    """How many requests wait, run and have ended since the server began."""
    running = running_count(figures)
    waiting = max(0, figures.get("unfinished", 0) - running)
    ended = [
        f"{figures[name]} {name}"
        for name in ("succeeded", "failed", "cancelled", "dead")
        if figures.get(name)
    ]
    return ", ".join([f"{running} running", f"{waiting} waiting", *ended])


def running_count(figures: dict[str, Any]) -> int:
    """How many requests run, those that wait for their children included."""
    lanes = figures.get("lanes") or {}
    each = list(lanes.values()) if isinstance(lanes, dict) else list(lanes)
    return sum(lane.get("running", 0) + lane.get("waiting", 0) for lane in each)


def memory(figures: dict[str, Any]) -> str:
    """What the workers use of the limit."""
    limit = figures.get("memory_limit_bytes")
    of = f" of {size(limit)}" if limit else ""
    low = ", low-resource mode" if figures.get("low_resource") else ""
    promised = size(figures.get("promised_bytes", 0))
    return f"{size(figures.get('resident_bytes', 0))}{of}, {promised} promised{low}"


def _running_for(info: dict[str, Any]) -> str:
    started = info.get("started_at")
    seconds = since(started) if isinstance(started, str) else None
    return f"for {duration(seconds)}"
