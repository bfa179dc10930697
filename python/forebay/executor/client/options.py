"""What one submission asks for, beyond what its definition says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Literal

from forebay.config import parse_bytes, parse_seconds
from forebay.errors import ConfigError
from forebay.executor.app.options import LANES, PRIORITY_MAX, RETRIES_MAX

if TYPE_CHECKING:
    from forebay.executor.client.request import Request

__all__ = ["Submit"]

_WHOLE: Final = {
    "priority": (-PRIORITY_MAX, PRIORITY_MAX),
    "retries": (0, RETRIES_MAX),
    "key_at_once": (1, 2**31 - 1),
}
"""Least and most."""

_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
"""The form; the server knows the rest of its rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """Options of one submission; what is None stays as the request's definition has it.

    Raises:
        ConfigError: a value is wrong; nothing was sent.
    """

    lane: Literal["short", "long", "async"] | None = None
    """Where it runs; from or to "async" is refused, because the function decides that."""

    priority: int | None = None
    """Higher runs first among the requests of one lane and submitter."""

    timeout: str | float | None = None
    """Seconds, or text such as "30s", that one run may take."""

    retries: int | None = None
    """How often it may run again after it raised or its worker died."""

    backoff: str | float | None = None
    """Pause before the first retry; it doubles, up to `max_backoff`."""

    max_backoff: str | float | None = None
    """The longest such pause."""

    idempotent: bool | None = None
    """Whether it may run twice, so that its claim need not be on disk before it runs."""

    key: str | None = None
    """Requests of one key run `key_at_once` at a time."""

    key_at_once: int | None = None
    """How many of one key run at once; 1 where only `key` is given."""

    idempotency: str | None = None
    """A second submission with the same text is the first one: it gets its id and its result.
    With it a submission is sent again by itself when the server went away before it answered."""

    memory: str | int | None = None
    """Bytes, or text such as "300MB", that it is expected to need."""

    cpu: float | None = None
    """Cores that it is expected to use."""

    after: Sequence[str | Request] | None = None
    """It waits until these have succeeded, and fails where one of them did not."""

    delay: str | float | None = None
    """Seconds, or text such as "5min", before which it does not run."""

    submitter: str | None = None
    """For whom; submitters share the workers fairly."""

    traceparent: str | None = None
    """The span that it belongs to, as the W3C writes it; the function has it in its context."""

    parent: str | Request | None = None
    """The request that submits it; inside of a request's function, that request by itself."""

    def __post_init__(self) -> None:
        if self.lane is not None and self.lane not in LANES:
            raise ConfigError(f"unknown lane {self.lane!r}; use one of {', '.join(LANES)}")
        for name, (low, high) in _WHOLE.items():
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or not low <= value <= high):
                raise ConfigError(f"{name} is {value!r}; give a number from {low} to {high}")
        if isinstance(self.after, str):
            raise ConfigError(f"after is {self.after!r}; give a list of ids")
        if self.traceparent is not None and not _TRACEPARENT.fullmatch(self.traceparent):
            raise ConfigError(
                f"traceparent is {self.traceparent!r}; give one of the W3C, as in"
                " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
            )

    @property
    def is_repeatable(self) -> bool:
        """Whether the server knows a submission that is sent twice."""
        return self.idempotency is not None

    def to_wire(self) -> dict[str, Any]:
        """The options that were given, in the units of the wire."""
        return {
            name: convert(value)
            for field in fields(self)
            if (value := getattr(self, field.name)) is not None
            for name, convert in (_WIRE.get(field.name, (field.name, _as_it_is)),)
        }


def _as_it_is(value: Any) -> Any:
    return value


def _id(request: Any) -> str:
    return request if isinstance(request, str) else request.id


def _ids(requests: Sequence[Any]) -> list[str]:
    return [_id(one) for one in requests]


_WIRE: Final[dict[str, tuple[str, Any]]] = {
    "timeout": ("timeout_s", parse_seconds),
    "backoff": ("backoff_s", parse_seconds),
    "max_backoff": ("backoff_max_s", parse_seconds),
    "memory": ("memory_bytes", parse_bytes),
    "delay": ("delay_s", parse_seconds),
    "after": ("after", _ids),
    "parent": ("parent", _id),
}
