"""Progress of searches: bars on a terminal, a few lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.text import Text

__all__ = ["Display", "LiveDisplay", "PlainDisplay", "display_on"]


class Display(Protocol):
    """Shows the searches while they run; used as a context manager, by one thread."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def show(self, program: str, trials: int, told: str) -> None:
        """Show how far the search of one program is."""

    def say(self, line: str) -> None:
        """Print one line among the progress."""


def display_on(console: Console, budget: int, status: Callable[[], str]) -> Display:
    """Make the display that suits `console`.

    Args:
        console: where to.
        budget: trials for each program.
        status: one line on what runs now.
    """
    kind = LiveDisplay if console.is_terminal else PlainDisplay
    return kind(console, budget, status)


class LiveDisplay:
    """A bar for each program, redrawn in place."""

    def __init__(self, console: Console, budget: int, status: Callable[[], str]):
        self._budget = budget
        self._status = status
        self._told = Text()
        self._tasks: dict[str, TaskID] = {}
        self._bars = Progress(
            TextColumn("  {task.description:<14}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[told]}"),
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
        self._live.__exit__(kind, error, trace)

    def show(self, program: str, trials: int, told: str) -> None:
        """Bring the program's bar up to date."""
        if program not in self._tasks:
            self._tasks[program] = self._bars.add_task(program, total=self._budget, told="")
        self._bars.update(self._tasks[program], completed=trials, told=told)
        self._told = Text(f"  {self._status()}")

    def say(self, line: str) -> None:
        """Print one line above the bars."""
        self._live.console.print(line, highlight=False, soft_wrap=True)

    def _render(self) -> Group:
        return Group(self._bars, self._told)


class PlainDisplay:
    """A line at each quarter of a program's budget."""

    def __init__(self, console: Console, budget: int, status: Callable[[], str]):
        self._console = console
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
        return None

    def show(self, program: str, trials: int, told: str) -> None:
        """Print a line where the program came a quarter further."""
        quarter = trials * 4 // self._budget
        if quarter > self._quarters.get(program, 0):
            self._quarters[program] = quarter
            self.say(
                f"  {program:<14} {trials:>4}/{self._budget}  {told:<36} {self._status()}".rstrip()
            )

    def say(self, line: str) -> None:
        """Print one line."""
        self._console.print(line, highlight=False, soft_wrap=True)
