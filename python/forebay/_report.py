"""What a thread that nobody restarts does about an error that must not end it."""

from __future__ import annotations

import contextlib
from logging import Logger
from typing import Final

__all__ = ["RETRY_S", "report"]

RETRY_S: Final = 0.1
"""How long a thread that cannot even wait, as without memory, lets others go on."""


def report(log: Logger, error: BaseException, message: str, *args: object) -> None:
    """Log `error` with its traceback.

    That there is no memory for the line, or that a handler raises, ends nothing either.
    """
    with contextlib.suppress(BaseException):
        log.error(message, *args, exc_info=error)
