"""Errors that must not end the thread in which they were raised."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from logging import Logger
from typing import Final, TypeVar

__all__ = ["RETRY_S", "guarded", "report"]

Future = TypeVar("Future")

RETRY_S: Final = 0.1
"""Pause of a thread that cannot even wait, as without memory, so that others can run."""


def report(log: Logger, error: BaseException, message: str, *args: object) -> None:
    """Log `error` with its traceback.

    Neither a lack of memory for the line nor a handler that raises ends the thread.
    """
    with contextlib.suppress(BaseException):
        log.error(message, *args, exc_info=error)


def guarded(log: Logger, kind: str, end: Callable[[Future], None], future: Future) -> None:
    """End a future of that kind; what its callbacks raise, SystemExit too, must not end others.

    `end` is a function of the class: a bound method would be an object more for each future.
    """
    try:
        end(future)
    except BaseException as error:
        report(log, error, "a callback of a %s future raised %s", kind, type(error).__name__)
