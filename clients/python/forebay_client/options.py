"""What one submission asks for, beyond what its definition says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from forebay_client.errors import ConfigError

__all__ = ["Submit", "key_of", "options_of", "trace_of"]

TRAVELLING: Final = (
    "lane",
    "priority",
    "timeout",
    "retries",
    "backoff",
    "max_backoff",
    "key",
    "key_at_once",
    "memory",
    "cpu",
    "after",
    "delay",
)
"""Options that go with a submission, by the names of `Submit`."""

NOT_TRAVELLING: Final = {
    "submitter": "it is the name of the token",
    "idempotent": "the definition of the request says it",
    "parent": "nobody can name another request's",
}
"""Options of `forebay.Submit` that a gateway takes from nobody."""

KEY_CHARS_MAX: Final = 255

_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """Options of one submission; what is None stays as the request's definition has it.

    The gateway checks them. Times are seconds or text such as "30s", sizes bytes or text such as
    "300MB".
    """

    lane: Literal["short", "long", "async"] | None = None
    """Where it runs."""

    priority: int | None = None
    """Higher runs first among the requests of one lane and submitter."""

    timeout: str | float | None = None
    """That one run may take."""

    retries: int | None = None
    """How often it may run again after it raised or its worker died."""

    backoff: str | float | None = None
    """Pause before the first retry; it doubles, up to `max_backoff`."""

    max_backoff: str | float | None = None
    """The longest such pause."""

    key: str | None = None
    """Requests of one key run `key_at_once` at a time."""

    key_at_once: int | None = None
    """How many of one key run at once; 1 where only `key` is given."""

    idempotency: str | None = None
    """A second submission with the same text is the first one: it gets its id and its result.
    Without it each submission has one by chance, so that it can be sent again by itself."""

    memory: str | int | None = None
    """Bytes that it is expected to need."""

    cpu: float | None = None
    """Cores that it is expected to use."""

    after: Sequence[Any] | None = None
    """Ids or handles: it waits until these have succeeded, and fails where one did not."""

    delay: str | float | None = None
    """Before it runs."""

    traceparent: str | None = None
    """The span that it belongs to, as the W3C writes it; the function has it in its context."""


def options_of(options: Any) -> dict[str, Any]:
    """The options that were given, as they travel: ids for handles, the rest as it is.

    Args:
        options: a `Submit`, of this package or of forebay; or None.

    Raises:
        ConfigError: one of them cannot be asked for over HTTP.
    """
    if options is None:
        return {}
    for name, why in NOT_TRAVELLING.items():
        if getattr(options, name, None) is not None:
            raise ConfigError(f"{name} cannot be given over HTTP, where {why}; leave it out")
    given = {name: getattr(options, name, None) for name in TRAVELLING}
    if isinstance(given["after"], str):
        raise ConfigError(f"after is {given['after']!r}; give a list of ids")
    if given["after"] is not None:
        given["after"] = [one if isinstance(one, str) else one.id for one in given["after"]]
    return {name: value for name, value in given.items() if value is not None}


def trace_of(options: Any) -> str | None:
    """The span that was given.

    Raises:
        ConfigError: it does not fit into a field of HTTP.
    """
    trace = getattr(options, "traceparent", None)
    if trace is None or (isinstance(trace, str) and _TRACEPARENT.fullmatch(trace)):
        return trace
    raise ConfigError(
        f"traceparent is {trace!r:.100}; give one of the W3C, as in"
        " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    )


def key_of(options: Any) -> str | None:
    """The idempotency key that was given.

    Raises:
        ConfigError: it does not fit into a field of HTTP.
    """
    key = getattr(options, "idempotency", None)
    if key is None:
        return None
    if not isinstance(key, str) or not 1 <= len(key) <= KEY_CHARS_MAX or not _is_printable(key):
        raise ConfigError(
            f"idempotency is {key!r:.100}; give 1 to {KEY_CHARS_MAX} printable characters of ASCII"
        )
    return key


def _is_printable(key: str) -> bool:
    return key.isascii() and key.isprintable() and key == key.strip()
