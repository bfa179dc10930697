"""Sizes and times as people write them.

A size or a time that is configured may be a number, in bytes or seconds, or text with a unit.
The units are exact: `KB` is 1,000 bytes, `KiB` is 1,024.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from forebay.errors import ConfigError

__all__ = ["parse_bytes", "parse_seconds"]

_BYTES: Final = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
_SECONDS: Final = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "min": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
_QUANTITY: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*", re.ASCII)


def parse_bytes(text: str | int) -> int:
    """Turn a size such as "300MB" into bytes.

    Args:
        text: a number and one of the units B, KB, MB, GB, KiB, MiB, GiB, as in "1.5GiB" or
            "300 MB"; or a whole number of bytes, which is returned as it is.

    Returns:
        The size in bytes, 0 or more; a fraction of a byte is cut off.

    Raises:
        ConfigError: the text is no size, its unit is unknown, or the number is negative.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        if text < 0:
            raise ConfigError(f"a size of {text} bytes is negative")
        return text
    amount, unit = _quantity(text, "size", "2GiB")
    if unit not in _BYTES:
        raise ConfigError(
            f"size {text!r}: unknown unit {unit!r}; the units are {', '.join(_BYTES)}"
        )
    return int(amount * _BYTES[unit])


def parse_seconds(text: str | float) -> float:
    """Turn a time such as "30s" into seconds.

    Args:
        text: a number and one of the units ms, s, min, h, d, as in "1.5h" or "500 ms";
            or a number of seconds, which is returned as a float.

    Returns:
        The time in seconds, 0 or more.

    Raises:
        ConfigError: the text is no time, its unit is unknown, or the number is negative or a nan.
    """
    if isinstance(text, int | float) and not isinstance(text, bool):
        if not text >= 0:  # also true for a nan
            raise ConfigError(f"a time of {text} seconds is negative or no number")
        return float(text)
    amount, unit = _quantity(text, "time", "30s")
    if unit not in _SECONDS:
        raise ConfigError(
            f"time {text!r}: unknown unit {unit!r}; the units are {', '.join(_SECONDS)}"
        )
    return float(amount * _SECONDS[unit])


def _quantity(text: object, what: str, example: str) -> tuple[Decimal, str]:
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ConfigError(f"{what} {text!r}: write a number and a unit, such as {example!r}")
    return Decimal(match[1]), match[2]
