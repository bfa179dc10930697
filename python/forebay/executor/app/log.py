"""Loggers of requests, whose records become lines of their logs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any, TextIO

from forebay._log_format import formatter

ROOT = "forebay.request"
_FORMAT = "%(asctime)s %(levelname)s %(message)s"
_formatter = logging.Formatter(_FORMAT)


class _Handler(logging.StreamHandler[TextIO]):
    """Writes to the current `sys.stderr`."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.setFormatter(_formatter)

    @property
    def stream(self) -> TextIO:
        """The current `sys.stderr`."""
        return sys.stderr

    @stream.setter
    def stream(self, _: Any) -> None:
        pass


def write_lines_as(word: str | None, request: Callable[[], str | None]) -> None:
    """Set the form of the log lines of this worker.

    That of the loggers of requests, and of those whose records no handler takes.

    Args:
        word: "text" or "json"; None: text.
        request: the id of the request that runs where a record is made.
    """
    global _formatter
    _formatter = formatter(word, _FORMAT, request)
    if word == "json" and logging.lastResort is not None:
        logging.lastResort.setFormatter(_formatter)


def logger_of(name: str, *, worker: bool) -> logging.Logger:
    """The logger of the request `name`; in a worker its records go to stderr from INFO on."""
    root = logging.getLogger(ROOT)
    if worker and not root.handlers:
        root.addHandler(_Handler())
        root.setLevel(logging.INFO)
        root.propagate = False
    return logging.getLogger(f"{ROOT}.{name}")
