"""Loggers of requests, whose records become lines of their logs."""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO

ROOT = "forebay.request"
_FORMAT = "%(asctime)s %(levelname)s %(message)s"


class _Handler(logging.StreamHandler[TextIO]):
    """Writes to the current `sys.stderr`."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.setFormatter(logging.Formatter(_FORMAT))

    @property
    def stream(self) -> TextIO:
        """The current `sys.stderr`."""
        return sys.stderr

    @stream.setter
    def stream(self, _: Any) -> None:
        pass


def logger_of(name: str, *, worker: bool) -> logging.Logger:
    """The logger of the request `name`; in a worker its records go to stderr from INFO on."""
    root = logging.getLogger(ROOT)
    if worker and not root.handlers:
        root.addHandler(_Handler())
        root.setLevel(logging.INFO)
        root.propagate = False
    return logging.getLogger(f"{ROOT}.{name}")
