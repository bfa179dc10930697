"""Sizes and times as text."""

from __future__ import annotations

import pytest

from forebay.config import parse_bytes, parse_seconds
from forebay.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("300MB", 300_000_000),
        ("2GiB", 2 << 30),
        ("1.5 KiB", 1536),
        (" 7 B ", 7),
        ("0.1GB", 100_000_000),
        ("1KB", 1000),
        ("4MiB", 4 << 20),
        ("1GB", 10**9),
        (4096, 4096),
        (0, 0),
    ],
)
def test_sizes_are_exact(text: str | int, expected: int) -> None:
    """0.1 GB by way of a float could be a byte off."""
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "MB", "300", "300mb", "300TB", "-1MB", "1e3B", "1.MB", "٣MB", "1MB2", -1, True, 1.5, None],
)
def test_what_is_no_size_is_refused(text: object) -> None:
    """A unit that is guessed can be a factor of a million off."""
    with pytest.raises(ConfigError):
        parse_bytes(text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", 30.0),
        ("500ms", 0.5),
        ("5 min", 300.0),
        ("1.5h", 5400.0),
        ("7d", 604_800.0),
        (2, 2.0),
        (0.25, 0.25),
    ],
)
def test_times_are_seconds(text: str | float, expected: float) -> None:
    """Timeouts are written in whatever unit reads well."""
    assert parse_seconds(text) == expected


@pytest.mark.parametrize("text", ["", "30", "30 S", "1m", "-1s", -1, float("nan"), False, None])
def test_what_is_no_time_is_refused(text: object) -> None:
    """`1m` may be a minute or a month."""
    with pytest.raises(ConfigError):
        parse_seconds(text)  # type: ignore[arg-type]


def test_the_error_names_the_value_and_the_units() -> None:
    """The message is what the user of a configuration file sees."""
    with pytest.raises(ConfigError, match=r"'3TB'.*'TB'.*B, KB, MB, GB, KiB, MiB, GiB"):
        parse_bytes("3TB")
