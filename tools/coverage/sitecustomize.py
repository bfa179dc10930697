"""Begin to count lines in each process of the coverage's environment, before anything else runs."""

from __future__ import annotations

import _thread
import os

import forebay_lines

TYPE_CHECKING = False  # a checker takes it for true; importing typing would cost each process 28 ms
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))


def begin() -> None:
    """Count in this thread and in those to come; not where the marks are out of reach."""
    counts: list[int] = []
    numbers: dict[str, int] = {}
    try:
        with open(os.path.join(HERE, "lines.index"), encoding="utf-8") as index:
            # Where a test gives a process an environment of its own.
            os.environ.setdefault("LLVM_PROFILE_FILE", index.readline().rstrip("\n"))
            for row in index:
                count, _, path = row.rstrip("\n").partition(" ")
                numbers[path] = len(counts)
                counts.append(int(count))
        forebay_lines.start(os.path.join(HERE, "lines.marks"), counts, numbers)
    except OSError:
        return  # another root directory, or another user
    for name in ("start_new_thread", "start_joinable_thread"):
        if hasattr(_thread, name):
            setattr(_thread, name, counted(getattr(_thread, name)))


def counted(start: Callable[..., Any]) -> Callable[..., Any]:
    """Start threads that count, by a function of `_thread` that starts them."""

    def start_counted(function: Callable[..., Any], *rest: Any, **named: Any) -> Any:
        def run(*arguments: Any, **options: Any) -> None:
            forebay_lines.trace()
            function(*arguments, **options)

        return start(run, *rest, **named)

    return start_counted


begin()
