"""Reading the store: requests by page, prefix and time, for whoever looks from outside.

It reads through the store's own reader, never through Python's `sqlite3`: two copies of SQLite in
one process drop each other's locks (see the design note of `crates/executor/src/store`).
Every query is bounded. Any thread, one at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final

from forebay.executor.wire.ids import span_of, text_of
from forebay.executor.wire.refused import (
    Refused,
    checked_list,
    checked_map,
    checked_seconds,
    invalid,
    unknown,
)

STATUSES: Final = ("queued", "running", "succeeded", "failed", "cancelled", "dead")
LANES: Final = ("short", "long", "async")
QUEUED, RUNNING = 0, 1

PAGE_DEFAULT = 100
PAGE_MAX = 1000
"""Requests of one answer; a client asks for the next page with `before`."""

AMBIGUOUS_SHOWN = 5

NUMBER_MAX = 2**63 - 1
"""Of SQLite."""

MOMENT_MAX_S = 253_402_300_799
"""The end of the year 9999, behind which Python has no dates."""

_COLUMNS: Final = (
    "id",
    "name",
    "code",
    "submitter",
    "lane",
    "priority",
    "status",
    "attempts",
    "deaths",
    "retried",
    "accepted_at",
    "claimed_at",
    "ended_at",
    "wake_at",
    "peak_bytes",
    "result_kind",
    "result_bytes",
    "failure",
)
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM requests"

Query = Callable[[str, list[Any], int], list[tuple[Any, ...]]]
"""Statement, parameters, most rows; the rows."""

Row = dict[str, Any]


class Rows:
    """The requests of one store. `query` is that of a `StoreReader`."""

    def __init__(self, query: Query) -> None:
        self._query = query

    def get(self, number: int) -> Row:
        """One request.

        Raises:
            Refused: there is none of that number.
        """
        found = self._query(f"{_SELECT} WHERE id = ?", [number], 1)
        if not found:
            raise unknown("request", text_of(number), "see: forebay ps")
        return dict(zip(_COLUMNS, found[0], strict=True))

    def resolve(self, text: object) -> int:
        """The number of an id, of the beginning of one, or of "@last", the newest request.

        Raises:
            Refused: nothing, or more than one thing, is called that.
        """
        if isinstance(text, int) and not isinstance(text, bool) and 0 <= text <= NUMBER_MAX:
            return text
        if not isinstance(text, str):
            raise invalid("id", "the 12 characters of an id, or their beginning", text)
        if text == "@last":
            found = self._query("SELECT max(id) FROM requests", [], 1)
            if found and found[0][0] is not None:
                return int(found[0][0])
            raise unknown("request", text, "submit one")
        try:
            low, high = span_of(text)
        except ValueError:
            raise invalid("id", "the 12 characters of an id, or their beginning", text) from None
        found = self._query(
            "SELECT id FROM requests WHERE id >= ? AND id < ? ORDER BY id DESC",
            [low, high],
            AMBIGUOUS_SHOWN + 1,
        )
        if not found:
            raise unknown("request", text, "see: forebay ps")
        if len(found) > 1:
            shown = ", ".join(text_of(number) for (number,) in found[:AMBIGUOUS_SHOWN])
            more = " and more" if len(found) > AMBIGUOUS_SHOWN else ""
            raise Refused(
                "invalid",
                f"{text!r} is the beginning of several ids: {shown}{more}",
                object="id",
                value=text,
                next="give more characters",
            )
        return int(found[0][0])

    def page(
        self, filters: dict[str, Any], limit: int | None, before: object
    ) -> tuple[list[Row], bool]:
        """Requests, the newest first, and whether there are more.

        Args:
            filters: any of `status` (words), `name`, `submitter`, and `since` and `until`, times of
                acceptance in seconds since 1970 or as RFC 3339 text.
            limit: most requests, up to `PAGE_MAX`.
            before: the id behind which to go on, the last of the page before.

        Raises:
            Refused: a filter is unknown, or its value wrong.
        """
        limit = PAGE_DEFAULT if limit is None else limit
        if not isinstance(limit, int) or not 1 <= limit <= PAGE_MAX:
            raise invalid("limit", f"a number between 1 and {PAGE_MAX}", limit)
        clauses, values = _conditions(checked_map("filters", filters))
        if before is not None:
            clauses.append("id < ?")
            values.append(self.resolve(before))
        where = f" WHERE {' AND '.join(clauses)}" if clauses else ""
        found = self._query(
            f"{_SELECT}{where} ORDER BY id DESC LIMIT {limit + 1}", values, limit + 1
        )
        rows = [dict(zip(_COLUMNS, row, strict=True)) for row in found[:limit]]
        return rows, len(found) > limit

    def runs(self, number: int) -> list[Row]:
        """Runs of a request that did not end it, oldest first; of many, the newest."""
        found = self._query(
            "SELECT attempt, began_at, ended_at, failure FROM runs WHERE id = ?"
            " ORDER BY attempt DESC",
            [number],
            PAGE_DEFAULT,
        )
        return [
            {
                "attempt": attempt,
                "started_at": rfc3339(began),
                "ended_at": rfc3339(ended),
                "failure": _json(failure),
            }
            for attempt, began, ended, failure in reversed(found)
        ]

    def arguments(self, number: int) -> bytes:
        """The arguments of a request, as they were submitted."""
        found = self._query("SELECT blob FROM arguments WHERE id = ?", [number], 1)
        return bytes(found[0][0]) if found else b""

    def options(self, number: int) -> bytes | None:
        """What of a request's options differs from the defaults, in msgpack."""
        found = self._query("SELECT options FROM requests WHERE id = ?", [number], 1)
        return found[0][0] if found else None


def _conditions(filters: dict[str, Any]) -> tuple[list[str], list[Any]]:
    clauses: list[str] = []
    values: list[Any] = []
    for name, value in filters.items():
        if value is None:
            continue
        if name == "status":
            words = [value] if isinstance(value, str) else value
            numbers = [_status(word) for word in checked_list("status", words, len(STATUSES))]
            clauses.append(f"status IN ({', '.join('?' * len(numbers))})")
            values += numbers
        elif name in ("name", "submitter"):
            clauses.append(f"{name} = ?")
            values.append(str(value))
        elif name in ("since", "until"):
            clauses.append(f"accepted_at {'>=' if name == 'since' else '<'} ?")
            values.append(_milliseconds(name, value))
        else:
            allowed = "status, name, submitter, since or until"
            raise invalid("filter", allowed, name)
    return clauses, values


def _status(word: object) -> int:
    if word not in STATUSES:
        raise invalid("status", f"one of {', '.join(STATUSES)}", word)
    return STATUSES.index(word)


def _milliseconds(name: str, value: object) -> int:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return int(checked_seconds(name, value, MOMENT_MAX_S) * 1000)
    try:
        at = datetime.fromisoformat(str(value))
    except ValueError:
        raise invalid(name, "a time such as 2026-01-31T12:00:00Z", value) from None
    return int(at.timestamp() * 1000)  # without a zone it is local time, as people write it


def rfc3339(at_ms: int | None) -> str | None:
    """A time as programs read it, in UTC with milliseconds; None stays None."""
    if at_ms is None:
        return None
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shown(row: Row, now_ms: int) -> Row:
    """A row of the store as a client gets it: words, units, times in UTC."""
    began, ended = row["claimed_at"], row["ended_at"]
    queued_until = began if began is not None else ended if ended is not None else now_ms
    run_until = ended if ended is not None else now_ms
    return {
        "id": text_of(row["id"]),
        "name": row["name"],
        "status": STATUSES[row["status"]],
        "lane": LANES[row["lane"]],
        "submitter": row["submitter"],
        "priority": row["priority"],
        "attempts": row["attempts"],
        "deaths": row["deaths"],
        "retried": row["retried"],
        "code": row["code"],
        "accepted_at": rfc3339(row["accepted_at"]),
        "started_at": rfc3339(began),
        "ended_at": rfc3339(ended),
        "wake_at": rfc3339(row["wake_at"]),
        "queue_s": _span_s(row["accepted_at"], queued_until),
        "run_s": None if began is None else _span_s(began, run_until),
        "peak_bytes": row["peak_bytes"],
        "result_bytes": row["result_bytes"],
        "failure": _json(row["failure"]),
        "reason": None,
    }


def _span_s(begin_ms: int, end_ms: int) -> float:
    return max(0, end_ms - begin_ms) / 1000


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def unfinished(rows: Iterable[Row]) -> list[Row]:
    """Those whose status may have changed since they were written."""
    return [row for row in rows if row["ended_at"] is None]
