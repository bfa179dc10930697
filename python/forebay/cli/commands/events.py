"""`forebay events`: what happens in a server, as it happens."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from forebay.cli.output import colored, say, say_json, wants_color
from forebay.cli.parser import command, talking
from forebay.cli.session import session
from forebay.errors import Error

EXAMPLES = """\
  forebay events                              from now on, until Ctrl-C
  forebay events --name tune --event ended    how each request of a name ended
  forebay events --since-start --json         what the server keeps, and what follows
  forebay events --since 1883441234567891     behind the last event that you had (its seq)"""

KINDS: Final = (
    "accepted",
    "started",
    "progress",
    "queued",
    "ended",
    "retried",
    "refused",
    "worker_started",
    "worker_ended",
    "service_leased",
    "service_returned",
    "service_ended",
    "schedule",
    "server",
)
"""The kinds of events that may be asked for; a gap is told to everyone."""

Event = dict[str, Any]

FIRST: Final = ("event", "at_ms", "seq", "id", "name")
"""Fields with a place of their own in a line."""


def add(commands: Any) -> None:
    """Add the command to the command line."""
    parser = command(
        commands,
        "events",
        run,
        description="Print what happens in a server: a line for each change of a request, a worker"
        f" or a service. Kinds: {', '.join(KINDS)}.",
        examples=EXAMPLES,
    )
    talking(parser)
    several = {"action": "append", "default": None}
    parser.add_argument("--name", dest="names", help="only requests of this name", **several)
    parser.add_argument("--id", dest="ids", help="only this request", **several)
    parser.add_argument(
        "--event", dest="kinds", metavar="KIND", choices=KINDS, help="only this kind", **several
    )
    parser.add_argument("--submitter", metavar="NAME", help="only requests of this submitter")
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument(
        "--since-start", action="store_true", help="begin with the oldest that the server keeps"
    )
    begin.add_argument(
        "--since", type=int, metavar="SEQ", help="begin behind the event of this number"
    )


def run(options: argparse.Namespace) -> int:
    """Print them until the user leaves."""
    from forebay.cli.exit_codes import INTERRUPTED

    color = wants_color(options.color, sys.stdout)
    with session(options) as client:
        ids = options.ids and [client.get(one).id for one in options.ids]
        events = client.follow(
            names=options.names,
            ids=ids,
            events=options.kinds,
            submitter=options.submitter,
            cursor=0 if options.since_start else options.since,
        )
        try:
            _Printer(events, lambda event: _print(event, options, color=color)).join()
        except KeyboardInterrupt:
            return INTERRUPTED
    return 0


class _Printer:
    """Reads in a thread of its own, so that Ctrl-C always wakes the main thread.

    A thread that waits for an event may have looked for signals already when one comes, and would
    see it with the next event.
    """

    def __init__(self, events: Iterator[Event], show: Callable[[Event], None]) -> None:
        self._events = events
        self._show = show
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until there are no more events; raises the error that ended the reading."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            for event in self._events:
                self._show(event)
        except (Error, OSError) as error:  # OSError: nobody reads what is printed
            self._error = error


def _print(event: Event, options: argparse.Namespace, *, color: bool) -> None:
    if options.json:
        say_json(event)
    else:
        say(line(event, color=color))


def line(event: Event, *, color: bool) -> str:
    """An event as a line: its time, its kind, the request, and its fields."""
    kind = event["event"]
    if kind == "gap":
        return colored(
            f"gap: events {event['first']} to {event['last']} are lost", "bold", on=color
        )
    at_ms = event["at_ms"]
    clock = time.strftime("%H:%M:%S", time.localtime(at_ms / 1000)) + f".{at_ms % 1000:03d}"
    fields = [
        f"{name}={value}"
        for name, value in event.items()
        if name not in FIRST and value not in (None, "")
    ]
    status = event.get("status", "")
    words = [clock, colored(f"{kind:<16}", status, on=color)]
    words += [str(event[name]) for name in ("id", "name") if event.get(name)]
    return " ".join(words + fields).rstrip()
