"""Progress of requests as lines, or as JSON for programs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from forebay._pace import Pace
from forebay.cli.output import SCHEMA, murmur, note

__all__ = ["Display", "JsonDisplay", "LineDisplay"]

REASON_S: Final = 1.0
"""Seconds before a reason to wait is printed: a start of a worker ends before anyone reads it."""


class Display:
    """Shows the output of requests, but not their progress.

    Threads: any may call its methods.

    Attributes:
        wanted: whether it wants events.
    """

    wanted = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_within_line = False
        """Whether the log's last line has no end yet."""

    def write(self, text: str) -> None:
        """Show a piece of a log."""
        with self._lock:
            self._log(text)

    def event(self, id_: str, name: str, event: dict[str, Any]) -> None:
        """Show an event of a request."""

    def result(self, print_it: Callable[[], None]) -> None:
        """Have a piece of the result printed on stdout, where no line of a log is cut by it."""
        with self._lock:
            self._end_line()
            print_it()

    def __enter__(self) -> Display:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._finish()

    def _log(self, text: str) -> None:
        """Print a piece of a log; under the lock."""
        if text:
            murmur(text, is_log=True)
            self._is_within_line = not text.endswith("\n")

    def _end_line(self) -> None:
        """End the line of a log; under the lock."""
        if self._is_within_line:
            murmur("\n")
            self._is_within_line = False

    def _finish(self) -> None:
        """Show what has waited, and stop; under the lock."""


class JsonDisplay(Display):
    """One JSON object a line on stderr for each event.

    A line of a log that has no end yet is ended before an object, so that each object has a line of
    its own at once; the rest of the log's line begins another one.
    """

    wanted = True

    def event(self, id_: str, name: str, event: dict[str, Any]) -> None:
        """Print the event with the request's id and name."""
        with self._lock:
            self._end_line()
            note(json.dumps({"schema": SCHEMA, "id": id_, "name": name, **event}))

    def _finish(self) -> None:
        self._end_line()  # an error in JSON may follow


class LineDisplay(Display):
    """A line for every tenth of the work, or every 30 seconds; one for a reason to wait.

    While a line of a log has no end yet, the newest line of each request waits for it.
    """

    wanted = True

    def __init__(self) -> None:
        super().__init__()
        self._paces: dict[str, Pace] = {}
        self._reasons: dict[str, str] = {}
        """Reasons of requests that wait, which were not printed yet."""
        self._timer: threading.Timer | None = None
        self._held: dict[str, str] = {}

    def write(self, text: str) -> None:
        """Show a piece of a log; after the end of its line, the lines that wait for that."""
        lines, end, rest = text.rpartition("\n")
        with self._lock:
            if end:
                self._log(lines + end)
                self._show_held()
            self._log(rest)

    def event(self, id_: str, name: str, event: dict[str, Any]) -> None:
        """Print a line if one is due."""
        kind = event.get("event")
        with self._lock:
            if kind == "reason" and event.get("reason"):
                self._reasons[id_] = f"{called(id_, name)}: {event['reason']}"
                if self._timer is None:
                    self._timer = threading.Timer(REASON_S, self._tell_reasons)
                    self._timer.daemon = True
                    self._timer.start()
            elif kind == "status" and event.get("status") != "queued":
                self._reasons.pop(id_, None)
            elif kind == "progress":
                pace = self._paces.setdefault(id_, Pace())
                pace.take(event)
                if pace.is_due():
                    self._show(id_, f"{called(id_, name)}: {pace.text()}")

    def _tell_reasons(self) -> None:
        with self._lock:
            self._timer = None
            reasons, self._reasons = self._reasons, {}
            for id_, text in reasons.items():
                self._show(id_, text)

    def _show(self, id_: str, line: str) -> None:
        if self._is_within_line:
            self._held[id_] = line
        else:
            note(line)

    def _show_held(self) -> None:
        held, self._held = self._held, {}
        for line in held.values():
            note(line)

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._held:
            murmur("\n")  # the log ended within a line
            self._show_held()


def called(id_: str, name: str) -> str:
    """The name of a request in a line."""
    return f"{name} {id_}" if name else id_
