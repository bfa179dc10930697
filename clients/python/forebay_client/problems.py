"""What a gateway refuses with (RFC 9457), and how requests failed, as exceptions."""

from __future__ import annotations

import json
from typing import Any, Final, Literal

from forebay_client._failures import failure_error
from forebay_client.errors import (
    BrokenError,
    ConfigError,
    Error,
    InternalError,
    LimitError,
    ProtocolError,
)
from forebay_client.http.messages import Answer

__all__ = [
    "FAILURES",
    "IN_PROGRESS",
    "code_of",
    "delivered_of",
    "error_of",
    "problem_error",
    "problem_of",
    "result_error",
]

Delivered = Literal["no", "maybe"]

MEMBERS: Final = ("code", "object", "limit", "value", "next")
"""Of a problem, as attributes of its exception."""

FAILURES: Final = frozenset({"failed", "died", "timeout", "cancelled"})
"""Codes of the results of requests that did not succeed."""

IN_PROGRESS: Final = "idempotency_in_progress"
"""Code of a submission whose key another one has that is not on disk yet."""

_AWAY: Final = frozenset({"draining", "store", "server"})
_SHOWN_CHARS: Final = 200


def problem_of(answer: Answer) -> dict[str, Any]:
    """The problem document of an answer; empty where there is none."""
    if not answer.media.endswith("json"):
        return {}
    try:
        found = json.loads(bytes(answer.body))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def code_of(answer: Answer) -> str:
    """The code of a problem; empty where there is none."""
    return str(problem_of(answer).get("code", ""))


def delivered_of(answer: Answer) -> Delivered:
    """Whether a gateway that does not take a call now may have passed it on."""
    return _delivered(problem_of(answer))


def error_of(answer: Answer, name: str) -> Error:
    """The exception for an answer that refuses.

    Args:
        answer: with a status of 400 or more.
        name: of the gateway.
    """
    problem = problem_of(answer)
    if "code" not in problem:
        return _strange(answer, name)
    return problem_error({"status": answer.status, **problem})


def problem_error(problem: dict[str, Any]) -> Error:
    """The exception for a problem.

    Its attributes `code`, `object`, `limit`, `value` and `next` are the members of the problem.
    """
    code, status = str(problem.get("code", "")), problem.get("status", 0)
    text = str(problem.get("detail") or problem.get("message") or problem.get("title") or "refused")
    error: Any
    if code == "limit":
        error = LimitError(text)
    elif code in _AWAY:
        error = BrokenError(text, delivered=_delivered(problem))
    elif code == "timeout" and status == 408:
        error = BrokenError(text, delivered="no")
    elif code == "internal":
        error = InternalError(text)
    else:
        error = ConfigError(text)
    for member in MEMBERS:
        setattr(error, member, _number(problem.get(member)))
    return error  # type: ignore[no-any-return]


def result_error(id_: str, problem: dict[str, Any]) -> Error:
    """The exception for a request that did not succeed.

    Args:
        id_: of the request.
        problem: what its result is, with the failure as the server keeps it.
    """
    failure = problem.get("failure")
    if not isinstance(failure, dict):
        return BrokenError(str(problem.get("detail") or f"request {id_} did not succeed"))
    return failure_error(id_, failure)


def _strange(answer: Answer, name: str) -> Error:
    """For an answer of something in between, or of something that is no gateway."""
    shown = bytes(answer.body[:_SHOWN_CHARS]).decode("utf-8", "replace")
    told = f"{name} answered {answer.status} and no problem document: {shown!r}"
    if answer.status in (502, 503, 504):
        return BrokenError(f"{told}; what stands before the gateway does not reach it")
    if answer.status < 500:
        return ConfigError(f"{told}; see whether the URL is that of a gateway")
    return ProtocolError(told, peer=name)


def _delivered(problem: dict[str, Any]) -> Delivered:
    told = problem.get("delivered") or ("maybe" if problem.get("code") == "server" else "no")
    return "no" if told == "no" else "maybe"


def _number(value: Any) -> Any:
    """A number that came as text; nothing for empty text."""
    if not isinstance(value, str):
        return value
    if not value:
        return None
    return int(value) if value.isdecimal() else value
