"""What a program shows of a request that it waits for: its output, and how far it is."""

from __future__ import annotations

import sys
import time
from typing import Any, Final

from forebay._html import bar
from forebay._notebook import Output, is_notebook
from forebay._pace import Pace
from forebay._terminal import harmless

__all__ = ["LAST_WORDS_S", "UPDATE_S", "Display", "display_of", "going_on"]

UPDATE_S: Final = 0.1
"""The shortest time between two updates of a bar."""

LAST_WORDS_S: Final = 2.0
"""The longest time after a request's end in which the rest of its log is shown."""

_ENDS: Final = ("succeeded", "failed", "cancelled", "dead")


def display_of(called: str) -> Display:
    """A bar in a notebook, else lines; `called` is the request's name and id."""
    return _BarDisplay(called) if is_notebook() else _LineDisplay(called)


def going_on(id_: str) -> str:
    """The note of an exception that ended the waiting for a request."""
    return (
        f"request {id_} goes on; to wait again: client.get({id_!r}).watch(); "
        f"to cancel it: client.get({id_!r}).cancel()"
    )


class Display:
    """Shows output on stdout, as it comes, and events as its subclass does.

    Thread affinity: that of the cell or program that waits.
    """

    def __init__(self) -> None:
        self._pace = Pace()

    def show(self, told: str | dict[str, Any]) -> None:
        """Show a piece of the log, or an event."""
        if isinstance(told, dict):
            self._event(told)
        elif sys.stdout is not None:
            sys.stdout.write(harmless(told, sys.stdout, is_log=True))
            sys.stdout.flush()
        self.refresh()

    def refresh(self) -> None:
        """Show the newest event if it is not shown yet and its time has come.

        Whoever waits calls it every `UPDATE_S`: no other event may follow for long.
        """

    def close(self, state: str | None = None) -> None:
        """Show what has waited, and `state` instead of what was told of its state."""

    def _event(self, event: dict[str, Any]) -> None:
        raise NotImplementedError


class _LineDisplay(Display):
    """Progress as lines on stderr: one for a tenth of the work, or 30 seconds."""

    def __init__(self, called: str) -> None:
        super().__init__()
        self._called = called

    def _event(self, event: dict[str, Any]) -> None:
        """Print a line if one is due."""
        if event.get("event") != "progress":
            return
        self._pace.take(event)
        if self._pace.is_due() and sys.stderr is not None:
            line = harmless(f"{self._called}: {self._pace.text()}", sys.stderr)
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()


class _BarDisplay(Display):
    """Progress as a bar of HTML, which is updated in place."""

    def __init__(self, called: str) -> None:
        super().__init__()
        self._called = called
        self._state = "waits"
        self._told = True
        """Whether the newest event is shown."""
        self._shown_at = time.monotonic()
        self._output = Output(*self._forms())

    def refresh(self) -> None:
        """Update the bar, unless it shows the newest event or was updated moments ago."""
        if not self._told and time.monotonic() - self._shown_at >= UPDATE_S:
            self._show()

    def _event(self, event: dict[str, Any]) -> None:
        kind = event.get("event")
        if kind == "progress":
            self._pace.take(event)
        elif kind == "status":
            self._state = str(event.get("status"))
        elif kind == "reason" and event.get("reason"):
            self._state = str(event["reason"])
        else:
            return
        self._told = False

    def close(self, state: str | None = None) -> None:
        """Show the last that was told, or another state."""
        self._state = state or self._state
        if state or not self._told:
            self._show()

    def _show(self) -> None:
        self._told, self._shown_at = True, time.monotonic()
        self._output.replace(*self._forms())

    def _forms(self) -> tuple[str, str]:
        """The bar, and its text."""
        pace = self._pace
        text = f"{self._state}, {pace.text()}" if pace.done or pace.total else self._state
        over = self._state in _ENDS
        done, total = (
            (pace.done, pace.total) if pace.total else (float(over), 1.0 if over else None)
        )
        return bar(self._called, done, total, text), f"{self._called}: {text}"
