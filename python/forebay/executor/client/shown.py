"""Requests as a notebook shows them: small tables."""

from __future__ import annotations

from typing import Any

from forebay._failures import failure_text
from forebay._html import table
from forebay._units import duration, since, size

__all__ = ["RequestRows", "request_table", "why_of"]

WHY_CHARS_MAX = 80

_HEAD = ("id", "name", "status", "age", "ran", "peak", "why")


class RequestRows(list[dict[str, Any]]):
    """What a server tells of requests: a list of maps, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        return table(f"{len(self)} requests", _HEAD, [_cells(row) for row in self])


def request_table(row: dict[str, Any]) -> str:
    """What is known of one request."""
    return table(f"request {row.get('id') or row.get('name')}", _HEAD, [_cells(row)])


def why_of(row: dict[str, Any]) -> str:
    """Why a request waits, or what it failed with, in a few words."""
    failure = row.get("failure")
    if row.get("status") in ("failed", "dead") and failure:
        return failure_text(failure).partition("\n")[0][:WHY_CHARS_MAX]
    return str(row.get("reason") or "")[:WHY_CHARS_MAX]


def _cells(row: dict[str, Any]) -> tuple[Any, ...]:
    return (
        row.get("id"),
        row.get("name"),
        row.get("status"),
        duration(since(row.get("accepted_at"))),
        duration(row.get("run_s")),
        size(row.get("peak_bytes")),
        why_of(row),
    )
