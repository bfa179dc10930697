"""Requests of the store as clients ask for them and get them: filters, ids, words, times.

The reads, and how each is bounded, are in `crates/executor/src/store/reader/reads.rs`.
Any thread, one at a time.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Protocol, overload

import msgspec

from forebay.executor.wire.ids import number_of, text_of
from forebay.executor.wire.items import DIRECTORY, HEAD_BYTES, head_of
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

PAGE_DEFAULT = 100
PAGE_MAX = 1000
"""Requests of one answer; a client asks for the next page with its cursor."""

RUNS_MAX = 100
"""Past runs of one request that are shown."""

AMBIGUOUS_SHOWN = 5

NUMBER_MAX = 2**63 - 1
"""Of SQLite."""

MOMENT_MAX_S = 253_402_300_799
"""The end of the year 9999, behind which Python has no dates."""

FILTERS: Final = ("status", "name", "submitter", "lane", "since", "until", "parent")
"""What a page may leave out."""

Row = dict[str, Any]


class Reader(Protocol):
    """What it needs of a `StoreReader`."""

    def get(self, id: int) -> Row | None:
        """One request."""

    def newest(self) -> int | None:
        """The number of the newest one."""

    def beginning_with(self, text: str, count_max: int) -> list[int] | None:
        """Those whose ids begin so; None: no id does."""

    def page(
        self,
        count_max: int,
        cursor: int | None = None,
        *,
        status: Sequence[str] = (),
        name: str | None = None,
        submitter: str | None = None,
        lane: str | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
        parent: int | None = None,
    ) -> tuple[list[Row], int | None]:
        """The newest behind the cursor, and the next cursor."""

    def runs(self, id: int, count_max: int) -> list[Row]:
        """Runs that did not end it, the oldest first."""

    def arguments(self, id: int) -> bytes | None:
        """As they were submitted."""

    def options(self, id: int) -> bytes | None:
        """What differs from the defaults, in msgpack."""


class Rows:
    """The requests of one store.

    Args:
        reader: of the database.
        state: the state directory, where items lie; None: nobody asks for them.
    """

    def __init__(self, reader: Reader, state: str | None = None) -> None:
        self._reader = reader
        self._items = None if state is None else os.path.join(state, DIRECTORY)

    def get(self, number: int) -> Row:
        """One request.

        Raises:
            Refused: there is none of that number.
        """
        found = self._reader.get(number)
        if found is None:
            raise unknown("request", text_of(number), "see: forebay ps")
        return found

    def kept(self, ids: Iterable[str]) -> list[Row]:
        """Requests by their ids, the newest first, without those that are gone."""
        found = [self._reader.beginning_with(id, 1) for id in ids]
        rows = [self._reader.get(one[0]) for one in found if one]
        return sorted((row for row in rows if row), key=lambda row: -row["id"])

    def resolve(self, text: object) -> int:
        """The number of an id, of the beginning of one, or of "@last", the newest request.

        Raises:
            Refused: nothing, or more than one thing, is called that.
        """
        if isinstance(text, int) and not isinstance(text, bool) and 0 <= text <= NUMBER_MAX:
            return text
        if text == "@last":
            newest = self._reader.newest()
            if newest is None:
                raise unknown("request", text, "submit one")
            return newest
        found = (
            self._reader.beginning_with(text, AMBIGUOUS_SHOWN + 1)
            if isinstance(text, str)
            else None
        )
        if found is None:
            raise invalid("id", "the 12 characters of an id, or their beginning", text)
        if not found:
            raise unknown("request", str(text), "see: forebay ps")
        if len(found) > 1:
            raise _ambiguous(str(text), found)
        return found[0]

    def page(
        self, filters: dict[str, Any], limit: int | None, cursor: object
    ) -> tuple[list[Row], int | None]:
        """Requests, the newest first, and the cursor of the next page; None: this is the last.

        A page with a cursor may have fewer requests than `limit`, even none: then the filter fits
        few of those that were looked at.

        Args:
            filters: any of `status` (words), `name`, `submitter`, `lane`, `parent` (an id), and
                `since` and `until`, times of acceptance in seconds since 1970 or as RFC 3339 text.
            limit: most requests, up to `PAGE_MAX`.
            cursor: of the page before, or the id behind which to go on.

        Raises:
            Refused: a filter is unknown, or its value wrong.
        """
        limit = PAGE_DEFAULT if limit is None else limit
        if not isinstance(limit, int) or not 1 <= limit <= PAGE_MAX:
            raise invalid("limit", f"a number between 1 and {PAGE_MAX}", limit)
        checked = _checked(checked_map("filters", filters))
        if "parent" in checked:
            checked["parent"] = self._number(checked["parent"])
        behind = None if cursor is None else self._number(cursor)
        return self._reader.page(limit, behind, **checked)

    def _number(self, id: object) -> int:
        """The number of an id whose request may have been pruned; else as `resolve`."""
        if isinstance(id, str):
            with contextlib.suppress(ValueError):
                return number_of(id)
        return self.resolve(id)

    def runs(self, number: int) -> list[Row]:
        """Runs of a request that did not end it, oldest first; of many, the newest."""
        return [
            {
                "attempt": run["attempt"],
                "started_at": rfc3339(run["began_at"]),
                "ended_at": rfc3339(run["ended_at"]),
                "failure": _json(run["failure"]),
            }
            for run in self._reader.runs(number, RUNS_MAX)
        ]

    def items(self, number: int) -> dict[str, int] | None:
        """How many items a request has yielded in its newest epoch.

        None: it is no generator, or none of its runs has begun.
        """
        if self._items is None:
            return None
        head = head_of(os.path.join(self._items, text_of(number)))
        if head is None:
            return None
        return {"epoch": head.epoch, "count": head.number, "bytes": head.end - HEAD_BYTES}

    def arguments(self, number: int) -> bytes:
        """The arguments of a request, as they were submitted."""
        return self._reader.arguments(number) or b""

    def options(self, number: int) -> dict[str, Any]:
        """What of a request's options differs from the defaults; ids as text."""
        stored = self._reader.options(number)
        options: dict[str, Any] = msgspec.msgpack.decode(stored) if stored else {}
        if "after" in options:
            options["after"] = [text_of(id) for id in options["after"]]
        if "parent" in options:
            options["parent"] = text_of(options["parent"])
        options.pop("digest", None)  # of a child: for the server alone
        return options


def _ambiguous(text: str, found: list[int]) -> Refused:
    shown = ", ".join(map(text_of, found[:AMBIGUOUS_SHOWN]))
    more = " and more" if len(found) > AMBIGUOUS_SHOWN else ""
    return Refused(
        "invalid",
        f"{text!r} is the beginning of several ids: {shown}{more}",
        object="id",
        value=text,
        next="give more characters",
    )


def _checked(filters: dict[str, Any]) -> dict[str, Any]:
    """The filters of a client as the reader takes them."""
    checked: dict[str, Any] = {}
    for name, value in filters.items():
        if name not in FILTERS:
            raise invalid("filter", f"one of {', '.join(FILTERS)}", name)
        if value is None:
            continue
        if name == "status":
            words = checked_list(name, [value] if isinstance(value, str) else value, len(STATUSES))
            if not words:
                raise invalid(name, "one word at least; leave it out for any", words)
            checked[name] = [_word(name, word, STATUSES) for word in words]
        elif name == "lane":
            checked[name] = _word(name, value, LANES)
        elif name in ("since", "until"):
            checked[f"{name}_ms"] = _milliseconds(name, value)
        elif name == "parent":
            checked[name] = value
        else:
            checked[name] = str(value)
    return checked


def _word(what: str, word: object, words: tuple[str, ...]) -> str:
    if not isinstance(word, str) or word not in words:
        raise invalid(what, f"one of {', '.join(words)}", word)
    return word


def _milliseconds(name: str, value: object) -> int:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return int(checked_seconds(name, value, MOMENT_MAX_S) * 1000)
    try:
        at = datetime.fromisoformat(str(value))
    except ValueError:
        raise invalid(name, "a time such as 2026-01-31T12:00:00Z", value) from None
    # Without a zone it is local time, as people write it.
    return max(0, int(at.timestamp() * 1000))


def now_ms() -> int:
    """The time in milliseconds since 1970, as rows have it."""
    return time.time_ns() // 1_000_000


@overload
def rfc3339(at_ms: int) -> str: ...


@overload
def rfc3339(at_ms: int | None) -> str | None: ...


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
        "status": row["status"],
        "lane": row["lane"],
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
        "yielded": None,
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
