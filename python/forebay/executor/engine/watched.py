"""What a relay sleeps on: descriptors and the events that it wants of each, kept between turns."""

from __future__ import annotations

import select

__all__ = ["Watched", "events_of"]


def events_of(reads: bool, writes: bool) -> int:
    """What to poll a descriptor for, as a connection's `wants` says it."""
    return (select.POLLIN if reads else 0) | (select.POLLOUT if writes else 0)


class Watched:
    """A poll whose set of descriptors is given anew in each turn; only changes cost a call."""

    __slots__ = ("_poll", "_wanted")

    def __init__(self) -> None:
        self._poll = select.poll()
        self._wanted: dict[int, int] = {}

    def wait(self, wanted: dict[int, int], timeout_ms: int) -> dict[int, int]:
        """Sleep until one of them is ready or the time is over; events by descriptor."""
        if wanted != self._wanted:
            for descriptor in self._wanted.keys() - wanted.keys():
                self._poll.unregister(descriptor)
            for descriptor, events in wanted.items():
                if self._wanted.get(descriptor) != events:
                    self._poll.register(descriptor, events)
            self._wanted = wanted
        return dict(self._poll.poll(timeout_ms))
