"""Decides which delivery is tried when; without a clock, a thread or a socket.

The rows of the outbox say what waits. A row that was reported on is on its way to the disk, so what
was reported is kept here until the store has it: no row is tried again because a disk is full. The
store takes a limited number of reports, so no try begins whose end could not be reported.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

WAITS_S: Final = (5.0, 30.0, 120.0, 600.0)
"""Between one try and the next; a receiver may be away for ten minutes."""
JITTER: Final = 0.2
"""Of a wait, more or less: what failed together is not tried again together."""
AT_ONCE: Final = 4
"""Tries of all hooks."""
AT_ONCE_OF_HOOK: Final = 2
"""So that a hook that hangs leaves room for others."""
ROWS_READ: Final = 16
"""Of each hook: more than those that are being tried or on their way to the disk, as a rule."""

Row = dict[str, Any]
"""A row of the outbox."""


class Verdict(NamedTuple):
    """What became of a try.

    Attributes:
        hook: whose it was.
        row: of the outbox, with `tries` before this one.
        tries: with this one.
        due_ms: when the next one is due; None: there is none.
        is_answered: it was delivered.
    """

    hook: str
    row: Row
    tries: int
    due_ms: int | None
    is_answered: bool


class Turns:
    """Chooses rows, and knows what is being tried.

    Args:
        hooks: their names.
        waits_s: between one try and the next.
        chance: gives numbers from 0 to 1.
    """

    def __init__(
        self,
        hooks: Iterable[str],
        waits_s: tuple[float, ...] = WAITS_S,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._turns = dict.fromkeys(hooks, 0)
        """The number of each one's last try."""
        self._tried = 0
        self._waits_s = waits_s
        self._chance = chance
        self._flying: dict[str, tuple[str, Row]] = {}
        self._reported: dict[str, Verdict] = {}
        """What may not be on disk, the oldest first."""

    def forget_reported(self, unwritten: int) -> None:
        """Of what was reported only the newest, so many, are not on disk."""
        for token in list(self._reported)[: max(0, len(self._reported) - unwritten)]:
            del self._reported[token]

    def choose(
        self, read: Callable[[str, int], list[Row]], now_ms: int, room: int = AT_ONCE
    ) -> tuple[list[tuple[str, Row]], int | None]:
        """What to try now, which counts as being tried; and when the next row is due.

        Args:
            read: gives rows of a hook that wait, the first due at the front, at most so many.
            now_ms: by the clock that rows have their times of.
            room: how many ends of tries may be reported, with those of tries under way.
        """
        chosen: list[tuple[str, Row]] = []
        at_once = min(AT_ONCE, room)
        if len(self._flying) >= at_once:
            return chosen, None  # the end of a try, or of a commit, is when to look again
        waiting = {hook: self._waiting(hook, read, now_ms) for hook in self._turns}
        while hook := self._next(waiting, now_ms, at_once):
            row = waiting[hook].pop(0)
            self._begin(hook, row)
            chosen.append((hook, row))
        due = (
            rows[0]["due_at"]
            for hook, rows in waiting.items()
            if rows and self._may_begin(hook, at_once)
        )
        return chosen, min(due, default=None)

    def ended(self, token: str, *, is_answered: bool, now_ms: int) -> Verdict | None:
        """A try has ended; None: nobody knows of it."""
        found = self._flying.pop(token, None)
        if found is None:
            return None
        hook, row = found
        tries = row["tries"] + 1
        due_ms = None
        if not is_answered and tries <= len(self._waits_s):
            wait = self._waits_s[tries - 1] * (1 + JITTER * (2 * self._chance() - 1))
            due_ms = now_ms + int(1000 * wait)
        verdict = Verdict(hook, row, tries, due_ms, is_answered)
        self._reported.pop(token, None)  # the newest are at the end
        self._reported[token] = verdict
        return verdict

    @property
    def flying(self) -> list[str]:
        """The tokens of what is being tried."""
        return list(self._flying)

    def _begin(self, hook: str, row: Row) -> None:
        self._tried += 1
        self._turns[hook] = self._tried
        self._flying[row["token"]] = (hook, row)

    def _may_begin(self, hook: str, at_once: int) -> bool:
        of_hook = sum(other == hook for other, _ in self._flying.values())
        return len(self._flying) < at_once and of_hook < AT_ONCE_OF_HOOK

    def _next(self, waiting: dict[str, list[Row]], now_ms: int, at_once: int) -> str | None:
        """The hook whose last try is longest ago, of those that have something due."""
        due = (
            hook
            for hook, rows in waiting.items()
            if rows and rows[0]["due_at"] <= now_ms and self._may_begin(hook, at_once)
        )
        return min(due, key=self._turns.__getitem__, default=None)

    def _waiting(self, hook: str, read: Callable[[str, int], list[Row]], now_ms: int) -> list[Row]:
        """Rows of a hook that may be tried, the first due at the front."""
        rows = (self._as_reported(row) for row in read(hook, ROWS_READ))
        latest = now_ms + int(1000 * (1 + JITTER) * max(self._waits_s, default=0))
        waiting = [
            # Farther ahead than any wait: the clock was set back since, by nobody knows how much.
            row if row["due_at"] <= latest else {**row, "due_at": now_ms}
            for row in rows
            if row is not None and row["token"] not in self._flying
        ]
        return sorted(waiting, key=lambda row: int(row["due_at"]))

    def _as_reported(self, row: Row) -> Row | None:
        """A row as it is once the disk has what was reported; None: it waits no more."""
        verdict = self._reported.get(row["token"])
        if verdict is None:
            return row
        if verdict.due_ms is None:
            return None
        return {**row, "tries": verdict.tries, "due_at": verdict.due_ms}
