"""What failures and refusals of the wire are as exceptions."""

from __future__ import annotations

import json
import signal
from typing import Any

from forebay.errors import (
    BrokenError,
    CancelledError,
    ConfigError,
    DeadlineError,
    DiedError,
    Error,
    InternalError,
    LimitError,
    remote_error,
)

__all__ = ["failure_error", "failure_text", "refusal_error", "result_error"]


def refusal_error(refusal: dict[str, Any]) -> Error:
    """What a refused call raises: nothing was accepted.

    Its attributes `code`, `object`, `limit`, `value` and `next` are the members of the refusal.
    """
    text = str(refusal.get("message", "refused"))
    if refusal.get("next"):
        text += f"; {refusal['next']}"
    code = refusal.get("code")
    error: Any
    if code == "limit":
        error = LimitError(text)
    elif code in ("draining", "store"):
        error = BrokenError(text, delivered="no")
    elif code == "internal":
        error = InternalError(text)
    else:
        error = ConfigError(text)
    for name in ("code", "object", "limit", "value", "next"):
        setattr(error, name, _number(refusal.get(name)))
    return error  # type: ignore[no-any-return]


def failure_error(id_: str, payload: Any) -> Error:
    """What the result of a request that did not succeed raises.

    Args:
        id_: of the request.
        payload: the failure as JSON bytes, or the map itself.
    """
    failure: dict[str, Any] = payload if isinstance(payload, dict) else json.loads(bytes(payload))
    kind = failure.get("kind")
    if kind == "raised":
        return remote_error(
            failure.get("builtin", "Exception"),
            failure.get("name", ""),
            _message_of(failure),
            failure.get("trace", ""),
        )
    text = f"request {id_} {failure_text(failure)}; see: forebay why {id_}"
    if kind == "died":
        return DiedError(
            text,
            cause=failure.get("cause", "unknown"),
            pid=failure.get("pid"),
            exit_code=failure.get("exit_code"),
            signal=failure.get("signal"),
            peak_bytes=failure.get("peak_bytes"),
            limit_bytes=failure.get("limit_bytes"),
            stderr_tail=failure.get("last_output") or "",
        )
    if kind == "timed_out":
        return DeadlineError(text, timeout=failure.get("timeout_s"))
    if kind == "cancelled":
        return CancelledError(f"request {id_} was cancelled")
    return BrokenError(text, delivered="no" if kind in ("after", "refused") else "maybe")


def result_error(name: str, error: Exception) -> Error:
    """What the result of a request that succeeded raises where its annotation says something else.

    Args:
        name: of the request; empty where it is not known.
        error: of the decoding.
    """
    told = f"request {name or 'of another program'} returned what its annotation does not say"
    told += f": {error}; correct the annotation, or the value"
    return remote_error("TypeError", "TypeError", told, "")


def _message_of(failure: dict[str, Any]) -> str:
    """The text of what was raised; a few say nothing themselves that a person understands."""
    message: str = failure.get("message", "")
    if failure.get("builtin") == "SystemExit":
        return f"the function called sys.exit({message}); return, or raise an exception"
    return message or str(failure.get("name", ""))


def failure_text(failure: dict[str, Any]) -> str:
    """What happened to a request, as the end of a sentence that begins with its id."""
    match failure.get("kind"):
        case "raised":
            name = str(failure.get("name", "")).rpartition(".")[2]
            return f"raised {name}: {failure.get('message', '')}".rstrip(": ")
        case "died":
            return _death_text(failure)
        case "timed_out":
            return f"ran longer than the {failure.get('timeout_s')} s that it may take"
        case "after":
            return f"waited for {failure.get('id')}, which did not succeed"
        case "outcome_unknown":
            return "had begun before the power was lost, and nobody knows how it ended"
        case "unkept":
            return f"ran, and its result was not kept: {failure.get('message', '')}"
        case "refused":
            return f"was refused when it was to run: {failure.get('message', '')}"
        case "cancelled":
            return "was cancelled"
        case other:
            return f"ended in a way that this version does not know ({other})"


def _death_text(failure: dict[str, Any]) -> str:
    told = _cause_text(failure)
    output = (failure.get("last_output") or "").strip()
    last = output.rpartition("\n")[2]
    return f"{told}; its last words: {last[:200]!r}" if last else told


def _cause_text(failure: dict[str, Any]) -> str:
    peak, limit = failure.get("peak_bytes"), failure.get("limit_bytes")
    used = "" if peak is None else f" at {megabytes(peak)} of private memory"
    of = "" if limit is None else f", the limit is {megabytes(limit)}"
    process = "its process" if failure.get("pid") is None else f"its process {failure['pid']}"
    match failure.get("cause"):
        case "memory":
            return f"was ended for its memory{used}{of}"
        case "exit":
            return f"ended because {process} left with exit code {failure.get('exit_code')}"
        case "signal":
            return f"ended because {process} was killed by {_signal(failure)}{used}"
        case "time":
            return f"did not heed its time-out, and {process} was killed"
        case "server":
            return "had begun when its server died, and may not run twice"
        case _:
            return f"ended because {process} was lost{used}"


def megabytes(size: float) -> str:
    """A number of bytes for people."""
    return f"{size / 1e6:.0f} MB" if size >= 10e6 else f"{size / 1e6:.1f} MB"


def _signal(failure: dict[str, Any]) -> str:
    number = failure.get("signal")
    try:
        return signal.Signals(int(number)).name  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return f"signal {number}"


def _number(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    if not text:
        return None
    return int(text) if text.isdecimal() else text
