"""What the figures of a server were in the last hour, as numbers in rings.

A sample has a number: the time since 1970 in units of `EVERY_S`, which goes on steadily while the
gateway runs, whatever the wall clock does. Its place in each ring is that number modulo `SAMPLES`.
"""

from __future__ import annotations

from array import array
from collections.abc import Container, Mapping, Sequence
from typing import Any, Final

__all__ = ["EVERY_S", "FIGURES", "SAMPLES", "History"]

EVERY_S: Final = 5
SAMPLES: Final = 720
"""An hour."""

WORKERS_MAX: Final = 64
"""Processes whose memory is kept, 6 kB each; at the limit one that has ended makes room."""

GAP: Final = -1
"""In the place of a number that is not known, which is told as null."""

FIGURES: Final = (
    "resident_bytes",
    "memory_limit_bytes",
    "ready",
    "parked",
    "running",
    "finished",
    "failed",
)
"""What is kept of a server; the last two are counts of one sample's time."""

ENDS: Final = ("succeeded", "failed", "cancelled", "dead")
FAILURES: Final = ("failed", "dead")
"""Counters of the server, whose growth is kept."""


class History:
    """The samples of the last hour.

    Args:
        number: of the first sample that there may be.

    Attributes:
        next: the number behind that of the newest sample.
    """

    def __init__(self, number: int) -> None:
        self.next = number
        self._until: str | None = None
        self._first = number
        self._rings = {name: _ring() for name in FIGURES}
        self._workers: dict[int, array[int]] = {}
        self._seen: dict[int, int] = {}
        """The number of the newest sample in which a worker was, by its process."""
        self._counted: tuple[int, int, int] | None = None
        """The number of the newest sample, with the counters of the server then."""

    def add(
        self,
        number: int,
        at: str,
        figures: Mapping[str, Any],
        workers: Sequence[Mapping[str, Any]],
    ) -> None:
        """Keep a sample; one whose number is not above those before is dropped.

        Args:
            number: of the sample; those that were left out are gaps.
            at: the time.
            figures: of the server.
            workers: of the server.
        """
        if number < self.next:
            return
        self._pass_to(number)
        self._until = at
        place = number % SAMPLES
        for name, value in self._values(number, figures).items():
            self._rings[name][place] = GAP if value is None else value
        sizes = {it["pid"]: it["private_bytes"] for it in workers if it.get("pid") is not None}
        for pid, private_bytes in sizes.items():
            if self._has_room(pid, sizes):
                self._workers.setdefault(pid, _ring())[place] = private_bytes
                self._seen[pid] = number

    def told(self, since: int | None) -> dict[str, Any]:
        """The samples from a number on; None: all of them.

        Returns:
            `first` and `next` are the numbers of the first one told and behind the last one, and
            `until` is the time of the last; the lists have one number, or None, for each of them.
        """
        first = max(self._first, self.next - SAMPLES)
        if since is not None and since > first:
            first = min(since, self.next)
        told = {name: self._part(ring, first) for name, ring in self._rings.items()}
        workers = {
            str(pid): self._part(ring, first)
            for pid, ring in self._workers.items()
            if self._seen[pid] >= first
        }
        return {
            "every_s": EVERY_S,
            "first": first,
            "next": self.next,
            "until": self._until,
            **told,
            "workers": workers,
        }

    def _pass_to(self, number: int) -> None:
        """Make gaps of the samples up to this one, and forget the workers that are in none."""
        rings = [*self._rings.values(), *self._workers.values()]
        for passed in range(max(self.next, number - SAMPLES + 1), number + 1):
            for ring in rings:
                ring[passed % SAMPLES] = GAP
        self.next = number + 1
        for pid in [pid for pid, seen in self._seen.items() if seen <= number - SAMPLES]:
            self._forget(pid)

    def _values(self, number: int, figures: Mapping[str, Any]) -> dict[str, int | None]:
        lanes = figures["lanes"].values()
        ended = sum(figures[name] for name in ENDS)
        failed = sum(figures[name] for name in FAILURES)
        before, self._counted = self._counted, (number, ended, failed)
        # Behind a gap, and of a server that was started again, nobody knows when they ended.
        grown = before is not None and before[0] == number - 1 and before[1] <= ended
        return {
            "resident_bytes": figures["resident_bytes"],
            "memory_limit_bytes": figures["memory_limit_bytes"],
            "ready": sum(lane["ready"] for lane in lanes),
            "parked": figures["parked"],
            "running": sum(lane["running"] for lane in lanes),
            "finished": ended - before[1] if before and grown else None,
            "failed": max(0, failed - before[2]) if before and grown else None,
        }

    def _has_room(self, pid: int, living: Container[int]) -> bool:
        """Whether a worker is kept, or may be: one that has ended, longest ago, makes room."""
        if pid in self._workers or len(self._workers) < WORKERS_MAX:
            return True
        ended = [one for one in self._seen if one not in living]
        if not ended:
            return False
        self._forget(min(ended, key=self._seen.__getitem__))
        return True

    def _forget(self, pid: int) -> None:
        del self._workers[pid], self._seen[pid]

    def _part(self, ring: array[int], first: int) -> list[int | None]:
        numbers = (ring[number % SAMPLES] for number in range(first, self.next))
        return [None if number == GAP else number for number in numbers]


def _ring() -> array[int]:
    return array("q", [GAP]) * SAMPLES
