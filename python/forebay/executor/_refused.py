"""Saying no to a client: a refusal, as it travels."""

from __future__ import annotations

from typing import Any

from forebay.errors import Error


class Refused(Error):
    """What was asked for is not done; the message alone is enough for a person.

    Attributes:
        code: "limit", "unknown", "invalid", "draining", "store" or "hold".
        object: what it is about.
        limit: what is allowed, or the name of the limit.
        value: what was asked for.
        next: what to do.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        object: str = "",
        limit: str = "",
        value: str = "",
        next: str = "",
    ) -> None:
        super().__init__(f"{message}; {next}" if next else message)
        self.code = code
        self.message = message
        self.object = object
        self.limit = limit
        self.value = value
        self.next = next

    def as_map(self) -> dict[str, Any]:
        """As it travels."""
        names = ("code", "message", "object", "limit", "value", "next")
        return {name: getattr(self, name) for name in names}


def unknown(what: str, value: str, next: str) -> Refused:
    """There is nothing of that name."""
    message = f"there is no {what} {value!r}"
    return Refused("unknown", message, object=what, value=value, next=next)


def invalid(what: str, allowed: str, value: object) -> Refused:
    """An argument is not what is allowed there."""
    return Refused(
        "invalid",
        f"{what}: expected {allowed}, got {value!r:.100}",
        object=what,
        limit=allowed,
        value=f"{value!r:.100}",
        next=f"give {allowed}",
    )
