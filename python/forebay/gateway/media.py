"""Which form a client sends, and which one it wants: Content-Type and Accept (RFC 9110)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from forebay.gateway.problems import Problem

__all__ = ["BYTES", "JSON", "MSGPACK", "NPY", "body_form", "choose"]

JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"
BYTES: Final = "application/octet-stream"
NPY: Final = "application/x-npy"

_BODY_FORMS: Final = (JSON, MSGPACK)
_UTF_8: Final = frozenset({"utf-8", "utf8"})


def body_form(content_type: str | None) -> str:
    """The form of a body: `JSON` or `MSGPACK`; JSON where nothing says it.

    Raises:
        Problem: 415; it is another one.
    """
    if content_type in (None, "", JSON):
        return JSON
    assert content_type is not None
    name, parameters = _split(content_type)
    charset = parameters.get("charset", "utf-8").lower()
    if name in _BODY_FORMS and (name != JSON or charset in _UTF_8):
        return name
    forms = ", ".join(_BODY_FORMS)
    message = f"Content-Type: expected one of {forms}, got {content_type!r:.100}"
    raise Problem(
        415,
        "media_type",
        message,
        object="Content-Type",
        limit=forms,
        value=content_type[:100],
        next=f"send Content-Type: {JSON}",
        headers=[(b"accept-post", forms.encode())],
    )


def choose(accept: str | None, offers: Sequence[str], reason: str = "") -> str:
    """The form of an answer, of those that there are.

    The highest weight wins, then the more exact range, then the earlier offer.

    Args:
        accept: the header; None: anything.
        offers: the default first.
        reason: why others are missing, before what a problem says.

    Raises:
        Problem: 406 with the offers; none is acceptable.
    """
    accept = accept or "*/*"
    if offers and accept in ("*/*", offers[0]):
        return offers[0]
    ranges = _ranges(accept)
    rated = [(*_rating(offer, ranges), -number) for number, offer in enumerate(offers)]
    weight, _, number = max(rated, default=(0.0, 0, 0))
    if weight > 0:
        return offers[-number]
    forms = ", ".join(offers) or "none"
    raise Problem(
        406,
        "not_acceptable",
        f"Accept: {reason}the forms are: {forms}; {accept!r:.200} takes none of them",
        object="Accept",
        limit=forms,
        value=accept[:200],
        next="send no Accept, or one that names a form",
    )


def _rating(offer: str, ranges: dict[str, float]) -> tuple[float, int]:
    """The weight of an offer, and how exactly a range names it."""
    names = ("*/*", f"{offer.partition('/')[0]}/*", offer)
    return next(
        ((ranges[name], exact) for exact, name in reversed([*enumerate(names)]) if name in ranges),
        (0.0, 0),
    )


def _ranges(accept: str) -> dict[str, float]:
    """The weights of the ranges of a header; what is no range is left out."""
    found: dict[str, float] = {}
    for part in accept.split(","):
        name, parameters = _split(part)
        try:
            weight = float(parameters.get("q", "1"))
        except ValueError:
            continue
        if "/" in name and 0 <= weight <= 1:
            found[name] = max(weight, found.get(name, 0.0))
    return found


def _split(header: str) -> tuple[str, dict[str, str]]:
    """A media type in lower case, and its parameters."""
    name, *rest = header.split(";")
    pairs = (part.partition("=") for part in rest)
    parameters = {key.strip().lower(): value.strip().strip('"') for key, _, value in pairs}
    return name.strip().lower(), parameters
