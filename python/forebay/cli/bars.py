"""A bar for each running request, drawn by rich."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from forebay._pace import Pace
from forebay.cli.output import harmless
from forebay.cli.progress import Display

MESSAGE_CHARS_MAX = 60


class BarDisplay(Display):
    """Bars at the bottom of the terminal; logs scroll above them.

    Args:
        color: what `--color` says.
    """

    wanted = True

    def __init__(self, color: str) -> None:
        super().__init__()
        console = Console(
            stderr=True,
            no_color=True if color == "never" else None,
            force_terminal=True if color == "always" else None,
        )
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=32),
            TextColumn("{task.fields[told]}"),
            console=console,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}
        self._paces: dict[str, Pace] = {}
        self._rest = ""

    def write(self, text: str) -> None:
        """Print whole lines above the bars; the rest waits for its end."""
        with self._lock:
            *lines, self._rest = (self._rest + text).split("\n")
            if lines:
                self._print("\n".join(lines))

    def event(self, id_: str, name: str, event: dict[str, Any]) -> None:
        """Move the request's bar."""
        with self._lock:
            task = self._tasks.get(id_)
            if task is None:
                task = self._bars.add_task(name or id_, total=None, told="waiting")
                self._tasks[id_] = task
            match event.get("event"):
                case "progress":
                    pace = self._paces.setdefault(id_, Pace())
                    pace.take(event)
                    text = pace.text()[: 2 * MESSAGE_CHARS_MAX]
                    self._bars.update(
                        task, total=pace.total, completed=pace.done, told=self._told(text)
                    )
                case "reason":
                    told = str(event.get("reason") or "")[:MESSAGE_CHARS_MAX]
                    self._bars.update(task, told=self._told(told))
                case "status":
                    self._bars.update(task, told=str(event.get("status")))

    def result(self, print_it: Callable[[], None]) -> None:
        """Have a piece of the result printed above the bars, which are drawn anew after it.

        While they are drawn, rich takes what is written to stdout for itself.
        """
        with self._lock:
            self._bars.stop()
            try:
                print_it()
            finally:
                self._bars.start()

    def __enter__(self) -> BarDisplay:
        self._bars.start()
        return self

    def _finish(self) -> None:
        if self._rest:
            self._print(self._rest)
            self._rest = ""
        self._bars.stop()

    def _told(self, text: str) -> str:
        return harmless(text, self._bars.console.file)

    def _print(self, text: str) -> None:
        text = harmless(text, self._bars.console.file, is_log=True)
        self._bars.console.print(text, markup=False, highlight=False, soft_wrap=True)
