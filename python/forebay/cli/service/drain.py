"""`forebay drain`: wait for what runs in a server that begins nothing more."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from forebay._units import duration
from forebay.cli.commands.status import running_count
from forebay.cli.exit_codes import TIMED_OUT
from forebay.cli.output import note, say_json
from forebay.cli.parser import command
from forebay.cli.service import cordon
from forebay.cli.session import session, tell
from forebay.errors import BrokenError

if TYPE_CHECKING:
    from forebay.executor import Client

EXAMPLES = """\
  forebay drain                 0 when nothing runs; what waits stays on disk
  forebay drain --timeout 60s   124 if something still runs after that; it stays drained
  forebay drain --finish        runs what waits, too
  forebay cordon --undo         it serves again"""

PAUSE_S: Final = 0.2
"""Between two looks at the server."""

REPEAT_S: Final = 10.0
"""What still runs is printed again after so long, if it has not changed."""

SHOWN_MAX: Final = 5
"""Requests that are named in one line."""


class _Left(NamedTuple):
    """What a server has to do before it is drained.

    Attributes:
        running: requests that run: their id, name and seconds.
        running_count: how many there are, of which `running` may name fewer.
        waiting_count: requests that have not begun.
        is_written: everything that has ended is on disk.
    """

    running: list[dict[str, Any]]
    running_count: int
    waiting_count: int
    is_written: bool


def add(commands: Any) -> None:
    """Add the command to the command line."""
    parser = command(
        commands,
        "drain",
        run,
        description="Let a server take no more submissions and begin nothing more but what running"
        " requests submit, and wait until nothing runs. What waits stays on disk: for forebay"
        " cordon --undo, or the next server.",
        examples=EXAMPLES,
    )
    cordon.cordoning(parser)
    parser.add_argument("--finish", action="store_true", help="run what waits, too")


def run(options: argparse.Namespace) -> int:
    """Ask for it, and show what still runs."""
    with session(options, waits=True) as client:
        cordon.ask(client, options, dispatches=options.finish)
        left, over = _wait(client, options)
    if options.json:
        told = {"running": left.running_count, "waiting": left.waiting_count}
        say_json({"schema": 1, "drained": over, **told, "requests": left.running})
    elif over:
        waits = f"; {left.waiting_count} wait on disk" if left.waiting_count else ""
        tell(options, f"forebay: nothing runs{waits}; serve again with: forebay cordon --undo")
    else:
        note(f"forebay: not drained in time: {_text(left)}; it begins nothing more")
    return 0 if over else TIMED_OUT


def _wait(client: Client, options: argparse.Namespace) -> tuple[_Left, bool]:
    """Look until nothing is left or the time is out; what was left, and whether it was nothing."""
    shown, shown_at = "", 0.0
    while True:
        left = _look(client)
        waits = left.waiting_count if options.finish else 0
        if not left.running_count and not waits and left.is_written:
            return left, True
        if options.until is not None and time.monotonic() >= options.until:
            return left, False
        which = " ".join(str(one["id"]) for one in left.running)
        if which != shown or time.monotonic() - shown_at >= REPEAT_S:
            tell(options, f"forebay: {_text(left)}")
            shown, shown_at = which, time.monotonic()
        time.sleep(PAUSE_S)


def _look(client: Client) -> _Left:
    """What is left of a server that is cordoned.

    Raises:
        BrokenError: it is not any more.
    """
    seen = client.ask("top")
    figures = seen.get("figures") or {}
    if not figures.get("cordon"):
        raise BrokenError("the cordon was undone while it drained, and the server serves")
    running = running_count(figures)
    # What a store that cannot write has kept stays kept; waiting would not change that.
    is_written = not figures.get("store_in_flight") or bool(figures.get("store_kept"))
    return _Left(
        [
            {"id": one.get("id"), "name": one.get("name"), "run_s": one.get("run_s")}
            for one in seen.get("requests") or []
            if one.get("status") == "running"
        ],
        running,
        max(0, figures.get("unfinished", 0) - running),
        is_written,
    )


def _text(left: _Left) -> str:
    named = [
        f"{one['id']} {one['name']} for {duration(one['run_s'])}"
        for one in left.running[:SHOWN_MAX]
    ]
    more = left.running_count - len(named)
    if more > 0 and named:
        named.append(f"and {more} more")
    runs = f"{left.running_count} running" + (f": {', '.join(named)}" if named else "")
    return f"{runs}; {left.waiting_count} waiting"
