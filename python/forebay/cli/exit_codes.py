"""How commands end: exit codes, and errors as people and programs read them."""

from __future__ import annotations

import signal
from typing import Any

from forebay.errors import (
    BrokenError,
    CancelledError,
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
CANCELLED = 6
DIED = 7
TIMED_OUT = 124
INTERRUPTED = 130
TERMINATED = 143


class NoSuchThingError(ConfigError):
    """The command line names something that does not exist."""


_CODES: tuple[tuple[type[Error], int, str], ...] = (
    (NoSuchThingError, NO_SUCH_THING, "no_such_thing"),
    (ConfigError, USAGE, "usage"),
    (LimitError, REFUSED, "limit"),
    (DeadlineError, TIMED_OUT, "timeout"),
    (CancelledError, CANCELLED, "cancelled"),
    (RemoteError, FAILED, "failed"),
    (DiedError, DIED, "died"),
    (BrokenError, NOT_REACHABLE, "not_reachable"),
    (Error, FAILED, "failed"),
)
"""Exit code and word of an error; the first class that fits decides."""


NEVER_BEGUN = ("refused", "unknown")
"""Errors of a handle about a request without an end: the server never had it, or has ended."""

_REFUSALS = {"unknown": (NO_SUCH_THING, "no_such_thing"), "store": (REFUSED, "store")}
"""The exit code and word of a server's refusal, if the class of the error does not give them."""


def code_of(error: Error) -> int:
    """The exit code of an error."""
    return _told(error)[0]


def code_of_end(status: str, error: Error | None) -> int:
    """The exit code of a request that has ended."""
    if error is None:
        return SUCCEEDED
    if status == "cancelled":
        return CANCELLED
    if status == "dead" or isinstance(error, DiedError):
        return DIED
    return code_of(error) if status in NEVER_BEGUN else FAILED


def _told(error: Error) -> tuple[int, str]:
    refused = _REFUSALS.get(getattr(error, "code", ""))
    return refused or next((code, word) for kind, code, word in _CODES if isinstance(error, kind))


def error_text(error: Error, *, as_json: bool) -> str:
    """An error for people, or as one JSON object."""
    import json

    message = str(error)
    if not as_json:
        return "\n".join([f"forebay: {message}", *getattr(error, "__notes__", ())])
    # Each of our messages ends with the next step, after its last semicolon.
    _, _, advice = message.rpartition("; ")
    told: dict[str, Any] = {
        "code": _told(error)[1],
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
