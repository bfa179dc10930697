"""What refusals of the wire are as exceptions."""

from __future__ import annotations

from typing import Any

from forebay.errors import BrokenError, ConfigError, Error, InternalError, LimitError, remote_error

__all__ = ["refusal_error", "result_error"]


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


def result_error(name: str, error: Exception) -> Error:
    """What the result of a request that succeeded raises where its annotation says something else.

    Args:
        name: of the request; empty where it is not known.
        error: of the decoding.
    """
    told = f"request {name or 'of another program'} returned what its annotation does not say"
    told += f": {error}; correct the annotation, or the value"
    return remote_error("TypeError", "TypeError", told, "")


def _number(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    if not text:
        return None
    return int(text) if text.isdecimal() else text
