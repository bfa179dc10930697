"""Saying no to a client: a refusal, as it travels."""

from __future__ import annotations

from typing import Any

from forebay.errors import Error

SECONDS_MAX = 10**9
"""30 years; a clock's sums stay far from what its numbers hold."""


class Refused(Error):
    """What was asked for is not done; the message alone is enough for a person.

    Attributes:
        code: "limit", "unknown", "invalid", "draining", "store", "hold", "forbidden" or
            "protocol".
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
    message = f"there is no {what} {value!r:.100}"
    return Refused("unknown", message, object=what, value=f"{value:.100}", next=next)


def checked_map(what: str, value: object) -> dict[str, Any]:
    """A map from names.

    Raises:
        Refused: it is none.
    """
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise invalid(what, "a map from names", value)
    return value


def checked_seconds(what: str, value: object, most: int = SECONDS_MAX) -> float:
    """A finite number of seconds, 0 or more.

    Raises:
        Refused: it is none.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= most:  # type: ignore[operator]
        raise invalid(what, f"seconds, from 0 to {most}", value)
    return float(value)  # type: ignore[arg-type]


def checked_list(what: str, value: object, count_max: int) -> list[Any]:
    """A list of at most so many.

    Raises:
        Refused: it is none.
    """
    if not isinstance(value, list) or len(value) > count_max:
        raise invalid(what, f"a list of at most {count_max}", value)
    return value


def invalid(what: str, allowed: str, value: object) -> Refused:
    """An argument is not what is allowed there."""
    return Refused(
        "invalid",
        f"{what}: expected {allowed}, got {value!r:.100}",
        object=what,
        limit=allowed,
        value=f"{value!r:.100}",
        next="",  # the message has it
    )
