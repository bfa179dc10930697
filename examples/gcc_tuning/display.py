"""Progress of a run of `tune`: bars on a terminal, a few lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.text import Text

from .search import Search

__all__ = ["Display", "LiveDisplay", "PlainDisplay", "display_on"]

Searches = dict[str, Search]


class Display(Protocol):
    """Shows the searches while they run; used as a context manager."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def tick(self) -> None:
        """Show the present state."""

    def say(self, line: str) -> None:
        """Print one line among the progress."""


def display_on(
    console: Console, searches: Searches, budget: int, status: Callable[[], str]
) -> Display:
    """Make the display that suits `console`.

    Args:
        console: where to.
        searches: filled by `tune`.
        budget: trials for each program.
        status: one line on what runs now.
    """
    kind = LiveDisplay if console.is_terminal else PlainDisplay
    return kind(console, searches, budget, status)


class LiveDisplay:
    """A bar for each program, redrawn in place."""

    def __init__(
        self, console: Console, searches: Searches, budget: int, status: Callable[[], str]
    ):
        self._searches = searches
        self._budget = budget
        self._status = status
        self._tasks: dict[str, TaskID] = {}
        self._bars = Progress(
            TextColumn("  {task.description:<14}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[best]}"),
            console=console,
        )
        self._live = Live(console=console, refresh_per_second=10, get_renderable=self._render)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.tick()
        self._live.__exit__(kind, error, trace)

    def tick(self) -> None:
        """Bring the bars up to date."""
        for program, search in list(self._searches.items()):
            if program not in self._tasks:
                self._tasks[program] = self._bars.add_task(program, total=self._budget, best="")
            self._bars.update(
                self._tasks[program], completed=len(search.history), best=describe(search)
            )

    def say(self, line: str) -> None:
        """Print one line above the bars."""
        self._live.console.print(line, highlight=False, soft_wrap=True)

    def _render(self) -> Group:
        return Group(self._bars, Text(f"  {self._status()}"))


class PlainDisplay:
    """A line at each quarter of a program's budget."""

    def __init__(
        self, console: Console, searches: Searches, budget: int, status: Callable[[], str]
    ):
        self._console = console
        self._searches = searches
        self._budget = budget
        self._status = status
        self._quarters: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.tick()

    def tick(self) -> None:
        """Print a line for each program that came a quarter further."""
        for program, search in list(self._searches.items()):
            done = len(search.history)
            quarter = done * 4 // self._budget
            if quarter > self._quarters.get(program, 0):
                self._quarters[program] = quarter
                progress = f"{done:>4}/{self._budget}"
                self.say(f"  {program:<14} {progress}  {describe(search):<36} {self._status()}")

    def say(self, line: str) -> None:
        """Print one line."""
        self._console.print(line, highlight=False, soft_wrap=True)


def describe(search: Search) -> str:
    """Say in a few words how far a search has come."""
    if search.base_bytes == 0:
        return ""
    saved = 100 * (1 - search.best_bytes / search.base_bytes)
    return f"best {search.best_bytes:>5} B of {search.base_bytes:>5} ({saved:.1f} % saved)"
