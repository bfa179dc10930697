"""What the gateway answers where it does not do what was asked: problem documents (RFC 9457).

A problem has the fields of a refusal of the wire, so that a client makes the same error of both.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import json

from forebay._failures import failure_text
from forebay.errors import (
    BrokenError,
    BusyError,
    CancelledError,
    ClosedError,
    ConfigError,
    DeadlineError,
    DiedError,
    Error,
    LimitError,
    RemoteError,
)
from forebay.gateway.names import argument_path, option_name

__all__ = [
    "MEDIA_TYPE",
    "TITLES",
    "Problem",
    "invalid",
    "problem_of",
    "problem_of_failure",
    "problem_of_refusal",
    "refused_value",
]

MEDIA_TYPE: Final = b"application/problem+json"

TITLES: Final = {
    "cancelled": "The request was cancelled",
    "died": "The process of the request died",
    "draining": "The server takes no submissions",
    "failed": "The request failed",
    "forbidden": "The token may not do this",
    "hold": "The application cannot be loaded",
    "host": "This server has another name",
    "idempotency_in_progress": "The first submission with this key is under way",
    "idempotency_mismatch": "The key belongs to another submission",
    "internal": "A fault of the server",
    "invalid": "A value is wrong",
    "invalid_state": "The state does not permit this",
    "limit": "A limit was reached",
    "malformed": "The message cannot be read",
    "media_type": "The form of the body is not known",
    "method": "The method is not known here",
    "not_acceptable": "There is no such form of this",
    "not_ended": "The request has not ended",
    "server": "The server does not answer",
    "store": "The store cannot be used",
    "timeout": "Time ran out",
    "unauthenticated": "A token is needed",
    "unknown": "There is no such thing",
}
"""Every code of a problem, and what it is called."""

RETRY_S: Final = {"limit": 1, "server": 1, "draining": 5, "hold": 5, "store": 5}
"""Seconds after which what was refused for this reason may be tried again."""

_STATUSES: Final = {
    "forbidden": 403,
    "unknown": 404,
    "invalid": 422,
    "limit": 429,
    "draining": 503,
    "hold": 503,
    "store": 503,
}
"""By the code of a refusal."""

_LIMIT_STATUSES: Final = {"max_argument_bytes": 413, "retention_bytes": 410, "clients_max": 503}
"""By the name of a limit that waiting does not help with, or that is the gateway's own."""

_FAILURE_CODES: Final = {"died": "died", "timed_out": "timeout", "cancelled": "cancelled"}
"""By the kind of a failure; the others are `failed`."""

_logger = logging.getLogger(__name__)

Headers = Sequence[tuple[bytes, bytes]]
"""Names in lower case and values, as ASGI has them."""


class Problem(Exception):
    """What was asked for is not done; the body of the answer says why.

    Attributes:
        status: of HTTP.
        code: a key of `TITLES`.
        message: what is wrong, with the object and its value; for people.
        object: what it is about: an argument by its path, an option, a header.
        limit: what is allowed, or the limit's name or value.
        value: what was asked for.
        next: what to do.
        headers: of the answer, beside the content's own.
        more: further fields of the body.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        object: str = "",
        limit: Any = None,
        value: Any = None,
        next: str = "",
        headers: Headers = (),
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(f"{message}; {next}" if next else message)
        self.status = status
        self.code = code
        self.message = message
        self.object = object
        self.limit = limit
        self.value = value
        self.next = next
        self.headers = headers
        self.more: Mapping[str, Any] = more or {}

    def as_map(self) -> dict[str, Any]:
        """The members of its document."""
        return {
            "type": f"/problems/{self.code}",
            "title": TITLES[self.code],
            "status": self.status,
            "detail": str(self),
            "code": self.code,
            "message": self.message,
            "object": self.object,
            "limit": self.limit,
            "value": self.value,
            "next": self.next,
            **self.more,
        }

    def body(self) -> bytes:
        """Its document, of the media type `MEDIA_TYPE`."""
        return json.encode(self.as_map())


def invalid(path: str, allowed: str, value: str) -> Problem:
    """A part of the body or of the query is not what is allowed there.

    Args:
        path: where it is, as in `arguments.image.shape`.
        allowed: what would be right.
        value: what came, cut where it is long.
    """
    message = f"{path}: expected {allowed}, got {value}"
    return Problem(422, "invalid", message, object=path, limit=allowed, value=value)


def refused_value(path: str, error: Exception) -> Problem:
    """A part of the body or of the query that its parser refuses.

    Args:
        path: where it is.
        error: of the parser; behind "; " its text has the next step.
    """
    message, _, next_step = str(error).partition("; ")
    return Problem(422, "invalid", f"{path}: {message}", object=path, next=next_step)


def problem_of(error: BaseException) -> Problem:
    """What an error becomes for who asked; one that nobody foresaw is logged, and tells nothing."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, Error) and isinstance(getattr(error, "code", None), str):
        return problem_of_refusal(_refusal_of(error))
    match error:
        case DiedError():
            return Problem(422, "died", str(error))
        case CancelledError():
            return Problem(422, "cancelled", str(error))
        case RemoteError():
            return Problem(422, "failed", str(error))
        case LimitError():
            return Problem(413, "limit", str(error), limit=error.limit, value=error.value)
        case ConfigError():
            return Problem(422, "invalid", str(error))
        case BusyError():
            return Problem(409, "invalid_state", str(error))
        case BrokenError():
            return _unreachable(str(error), error.delivered)
        case ClosedError():
            return _unreachable(str(error), "no")
        case DeadlineError():
            return _unreachable(str(error), "maybe")
    _logger.error("a request failed by a fault of the gateway", exc_info=error)
    return _fault("gateway")


def problem_of_refusal(refusal: Mapping[str, Any]) -> Problem:
    """What a refusal of the wire becomes.

    Args:
        refusal: its members `code`, `message`, `object`, `limit`, `value` and `next`.
    """
    code, message, subject = (
        str(refusal.get(name) or "") for name in ("code", "message", "object")
    )
    if code == "internal":
        _logger.error("the server failed: %s", message)
        return _fault("server")
    if code == "protocol":
        return _unreachable(message, "no")  # of another version than its server's
    if code not in _STATUSES:
        code = "invalid"
    status = _STATUSES[code]
    if code == "limit":
        status = _LIMIT_STATUSES.get(str(refusal.get("limit")), status)
    if code == "unknown" and (named := _option_of(subject, refusal)):
        status, code, subject = 422, "invalid", named
    waits = status in (429, 503) and code in RETRY_S
    return Problem(
        status,
        code,
        message,
        object=argument_path(subject, message) if code == "invalid" else subject,
        limit=_number(refusal.get("limit")),
        value=_number(refusal.get("value")),
        next=str(refusal.get("next") or ""),
        headers=[_retry_after(RETRY_S[code])] if waits else (),
    )


def problem_of_failure(id_: str, failure: Mapping[str, Any]) -> Problem:
    """What the result of a request that did not succeed is.

    Args:
        id_: of the request.
        failure: as the server keeps it; it is the member `failure` of the document.
    """
    code = _FAILURE_CODES.get(str(failure.get("kind")), "failed")
    message = f"request {id_} {failure_text(dict(failure))}"
    see = f"see: forebay why {id_}"
    return Problem(422, code, message, object=id_, next=see, more={"failure": failure})


def _refusal_of(error: Any) -> dict[str, Any]:
    """The members of a refusal that has become an exception; its text ends with the next step."""
    told = {name: getattr(error, name, None) for name in ("code", "object", "limit", "value")}
    next_step = getattr(error, "next", None) or ""
    message = str(error).removesuffix(f"; {next_step}") if next_step else str(error)
    return {**told, "message": message, "next": next_step}


def _option_of(subject: str, refusal: Mapping[str, Any]) -> str | None:
    """The option that names what is not there, or is not there itself."""
    if subject == "option":
        return option_name(str(refusal.get("value")))
    return "after" if subject == "request to come after" else None


def _fault(whose: str) -> Problem:
    """What failed inside is for the log, not for who asked."""
    message = f"the {whose} could not answer, by a fault of its own"
    return Problem(500, "internal", message, next="see the log of the server")


def _unreachable(message: str, delivered: str) -> Problem:
    headers = [_retry_after(RETRY_S["server"])]
    return Problem(503, "server", message, headers=headers, more={"delivered": delivered})


def _retry_after(seconds: int) -> tuple[bytes, bytes]:
    return b"retry-after", b"%d" % seconds


def _number(text: Any) -> Any:
    """A member of a refusal, which travels as text where it is a number too."""
    if not isinstance(text, str):
        return text
    if not text:
        return None
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else text
