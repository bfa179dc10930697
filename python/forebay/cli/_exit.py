"""How commands end: exit codes, and errors as people and programs read them."""

from __future__ import annotations

import signal
from typing import Any

from forebay.errors import (
    BrokenError,
    ConfigError,
    DeadlineError,
    DiedError,
    Error,
    LimitError,
    RemoteError,
)

SUCCEEDED = 0
FAILED = 1
USAGE = 2
NOT_REACHABLE = 3
NO_SUCH_THING = 4
REFUSED = 5
DIED = 7
TIMED_OUT = 124
INTERRUPTED = 130
TERMINATED = 143


class NoSuchThingError(ConfigError):
    """What the command line names is not there."""


_CODES: tuple[tuple[type[Error], int, str], ...] = (
    (NoSuchThingError, NO_SUCH_THING, "no_such_thing"),
    (ConfigError, USAGE, "usage"),
    (LimitError, REFUSED, "limit"),
    (DeadlineError, TIMED_OUT, "timeout"),
    (RemoteError, FAILED, "failed"),
    (DiedError, DIED, "died"),
    (BrokenError, NOT_REACHABLE, "not_reachable"),
    (Error, FAILED, "failed"),
)
"""Exit code and word of an error; the first class that fits decides."""


def code_of(error: Error) -> int:
    """The exit code of an error."""
    return next(code for kind, code, _ in _CODES if isinstance(error, kind))


def error_text(error: Error, *, as_json: bool) -> str:
    """An error for people, or as one JSON object."""
    import json

    message = str(error)
    if not as_json:
        return f"forebay: {message}"
    # Every message of ours ends with the next step, behind its last semicolon.
    _, _, advice = message.rpartition("; ")
    told: dict[str, Any] = {
        "code": next(word for kind, _, word in _CODES if isinstance(error, kind)),
        "message": message,
        "object": getattr(error, "object", None),
        "limit": getattr(error, "limit", None),
        "value": getattr(error, "value", None),
        "next": advice if advice != message else None,
    }
    return json.dumps({"schema": 1, "error": told})


def code_of_signal(number: int) -> int:
    """The exit code of a program that a signal ended."""
    return 128 + signal.Signals(number).value
