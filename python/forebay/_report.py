"""What a thread that nobody restarts tells the log of an error that must not end it."""

from __future__ import annotations

import contextlib
from logging import Logger

__all__ = ["report"]


def report(log: Logger, error: BaseException, message: str, *args: object) -> None:
    """Log `error` with its traceback.

    That there is no memory for the line, or that a handler raises, ends nothing either.
    """
    with contextlib.suppress(BaseException):
        log.error(message, *args, exc_info=error)
