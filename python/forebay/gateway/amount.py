"""How many values a body may have: each becomes an object, of up to a hundred times its bytes.

Two bytes of JSON can be a map, which takes 64 in memory, and one byte of MessagePack.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import msgpack

from forebay.gateway.media import JSON
from forebay.gateway.msgpack_heads import count_of, is_container, is_map
from forebay.gateway.problems import Problem, invalid

__all__ = ["LEVELS_MAX", "VALUES_MAX", "check_amount", "has_more_values"]

LEVELS_MAX: Final = 200
"""Values within values, as of the server's check; more than Python can follow are told the same."""

VALUES_MAX: Final = 2 << 20
"""200 MB of objects at most. Numbers in such amounts are an array, whose bytes are one value."""

_elements = msgpack.Decoder(list[msgspec.Raw]).decode
_members = msgpack.Decoder(dict[Any, msgspec.Raw]).decode


def check_amount(body: Any, form: str, path: str) -> None:
    """Refuse a body of more than `VALUES_MAX` values.

    In JSON commas and brackets are counted, in texts too; in MessagePack what its lists and maps
    say that they hold.

    Args:
        body: bytes.
        form: JSON or MessagePack.
        path: what the body is called.

    Raises:
        Problem: 413.

    Cost: none for a body that is shorter than `VALUES_MAX`.
    """
    if len(body) <= VALUES_MAX:
        return
    whole = bytes(body)
    if form == JSON:
        count = sum(map(whole.count, (b",", b"[", b"{")))
    else:
        count = VALUES_MAX - _left_of(memoryview(whole), VALUES_MAX, path, 1)
    if count > VALUES_MAX:
        raise Problem(
            413,
            "limit",
            f"{path}: values_max is {VALUES_MAX}, and there are more values, or commas in texts",
            object=path,
            limit=VALUES_MAX,
            next="send numbers as an array or as bytes, or submit several requests",
        )


def has_more_values(value: memoryview) -> bool:
    """Whether a value in MessagePack has more than `VALUES_MAX` values, or too many levels.

    Cost: none for one that is shorter than `VALUES_MAX`.
    """
    if len(value) <= VALUES_MAX:
        return False
    try:
        return _left_of(value, VALUES_MAX, "", 1) < 0
    except Problem:
        return True


def _left_of(value: memoryview, left: int, path: str, level: int) -> int:
    """How many values are left of so many, behind this one; below 0: it has more."""
    count = count_of(value)
    left -= count
    if left < 0 or not count:
        return left
    if level > LEVELS_MAX:
        raise invalid(path, f"at most {LEVELS_MAX} levels", "a deeper value")
    for one in _inside(value):
        view = memoryview(one)
        if not is_container(view[0]):
            continue
        left = _left_of(view, left, path, level + 1)
        if left < 0:
            break
    return left


def _inside(value: memoryview) -> Iterable[msgspec.Raw]:
    """The values of a list or a map; none where it cannot be read, as its reader will tell."""
    try:
        return _members(value).values() if is_map(value[0]) else _elements(value)
    except (ValueError, RecursionError):
        return ()
