"""The default values that the pages name are those of the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from forebay.config import (
    KINDS,
    BlockioConfig,
    ExecutorConfig,
    GatewayConfig,
    TensorConfig,
    parse_bytes,
    parse_seconds,
)

DOCS = Path(__file__).resolve().parents[2] / "docs"

PAGES: dict[str, tuple[str, Any, set[str]]] = {
    "executor": (
        "guides/serving.md",
        ExecutorConfig(),
        set(KINDS["executor"]) - {"engine", "scheduler", "engine_host"},
    ),
    "tensor": ("guides/parameter_server.md", TensorConfig(), set(KINDS["tensor"]) - {"fabric"}),
    "gateway": ("guides/http.md", GatewayConfig(), set(KINDS["gateway"])),
    "blockio": ("concepts/blockio.md", BlockioConfig(), set(KINDS["blockio"]) - {"engine"}),
}
"""By system: the page with its table, the defaults, and the settings that the table has.

The other settings are choices, which their pages explain in words.
"""

CONSTANTS = {
    "writing_bytes_max",
    "results_writing_bytes_max",
    "reserve_bytes_max",
    "client_results_bytes_max",
    "client_outbox_bytes_max",
    "clients_max",
    "feed_events_max",
    "filter_ids_max",
    "metric_names_max",
    "rows_looked_max",
    "unread_results_max",
    "ahead",
    "ahead_ms_max",
}
"""Limits of the executor that no setting changes, or a decorator."""


def rows(page: str) -> dict[str, str]:
    """The second column of the page's tables by the name in the first."""
    found = {}
    for line in (DOCS / page).read_text().splitlines():
        named = re.match(r"\| `(\w+)`[^|]*\| ([^|]+) \|", line)
        if named:
            found.setdefault(named[1], named[2].strip())
    return found


def value_of(text: str, kind: str) -> object:
    """A default as a page writes it: `10 s`, `100,000`, `1 MB in the store`, "found" for 0."""
    text = text.replace(",", "").strip("`").replace(" days", " d")
    number = re.match(r"[0-9.]+( (B|KB|MB|GB|KiB|MiB|GiB|ms|s|min|h|d)\b)?", text)
    if text == "found":
        return 0
    if number is None or kind == "word":
        return text
    if kind == "count":
        return int(number[0])
    return parse_seconds(number[0]) if kind == "time" else parse_bytes(number[0])


@pytest.mark.parametrize("system", PAGES)
def test_documented_defaults_are_the_defaults(system: str) -> None:
    """Whoever plans with a page's figure gets another limit otherwise."""
    page, config, names = PAGES[system]
    told = rows(page)
    for name in names:
        default = getattr(config, name)
        assert value_of(told[name], KINDS[system][name]) == default, (name, told[name], default)


def test_limits_of_the_executor_have_the_names_and_defaults_of_their_settings() -> None:
    """Who sets what a page or an error names must not be told that there is no such setting."""
    told = {
        name: text
        for name, text in rows("concepts/executor.md").items()
        if name.startswith("max_") or name.endswith("_max") or name in ("async_at_once", "ahead")
    }
    named = set(told) - CONSTANTS
    assert {
        "max_queued",
        "max_argument_bytes",
        "max_queue_bytes",
        "max_result_bytes",
        "max_log_bytes",
    } <= named
    for name in named:
        default = getattr(ExecutorConfig(), name)
        assert value_of(told[name], KINDS["executor"][name]) == default, name
