"""How log lines are written: as text, or as JSON, one object a line.

A line has `time` (RFC 3339, UTC), `level`, `logger`, `message`, and where there is one `request`
(the id), `exception` and `stack`. Further attributes of a record (`extra=`) are left out.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable

__all__ = ["JsonFormatter", "formatter", "log_to_stderr"]


def formatter(
    word: str | None, text: str, request: Callable[[], str | None] | None = None
) -> logging.Formatter:
    """The formatter for the setting `log_format`.

    Args:
        word: "json", or else a line of text.
        text: the form of that, as `logging.Formatter` takes it.
        request: the id of the request that runs where a record is made, for JSON.
    """
    return JsonFormatter(request) if word == "json" else logging.Formatter(text)


def log_to_stderr(level: str | None, word: str | None) -> None:
    """Log to stderr: for a program of ours that nobody watches.

    Args:
        level: the least that is logged; None: INFO.
        word: the setting `log_format`.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(word, "%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=(level or "INFO").upper(), handlers=[handler])


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def __init__(self, request: Callable[[], str | None] | None = None) -> None:
        from json import dumps  # which few processes need

        super().__init__()
        self._dumps = dumps
        self._request = request

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record, without its end."""
        second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        told = {
            "time": f"{second}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        request = getattr(record, "request", None) or (self._request and self._request())
        if request:
            told["request"] = str(request)
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            told["stack"] = self.formatStack(record.stack_info)
        return self._dumps(told, ensure_ascii=False)
