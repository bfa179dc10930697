"""The channels of a client to one service, of which each call takes the least busy one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from forebay.errors import BrokenError, DeadlineError
from forebay.rpc._channel import Channel

__all__ = ["ChannelSet", "Entry", "Verdict"]


class Verdict(Enum):
    """What a caller does that gets no channel now."""

    OPEN = "open another"
    WAIT = "wait for one that is being opened"


@dataclass(slots=True, eq=False)
class Entry:
    """A channel, and how many calls of ours are in flight on it."""

    channel: Channel
    calls: int = 0


class ChannelSet:
    """Decides without I/O: it neither waits nor locks, and opens nothing.

    A channel that is broken, or whose server said goodbye, takes no further call; it is gone once
    its last call has ended.

    Args:
        limit: channels at most, those that are being opened included.
        polls: whether to poll the socket of an idle channel, which has no other reader.
    """

    def __init__(self, limit: int, *, polls: bool) -> None:
        self._limit = limit
        self._polls = polls
        self._entries: list[Entry] = []
        self._leaving: list[Entry] = []
        self._opening = 0
        self._gone: list[Channel] = []

    def choose(self) -> Entry | Verdict:
        """The entry with the fewest calls, counted one more, or what to do for one.

        After `OPEN`, `add` or `give_up` is called once.
        """
        entries = self._entries
        if self._polls and entries and not entries[0].calls and entries[0].channel.poll():
            entries[0].calls = 1
            return entries[0]  # as always in a program of one thread
        while True:
            self._prune()
            best = min(self._entries, key=lambda entry: entry.calls, default=None)
            room = len(self._entries) + self._opening < self._limit
            if best is None or (best.calls and room):
                if not room:
                    return Verdict.WAIT
                self._opening += 1
                return Verdict.OPEN
            if best.calls or not self._polls or best.channel.poll():
                best.calls += 1
                return best

    def add(self, channel: Channel) -> Entry:
        """A channel was opened; its entry, with one call."""
        self._opening -= 1
        entry = Entry(channel, 1)
        self._entries.append(entry)
        return entry

    def give_up(self, error: BaseException) -> Entry | None:
        """No channel was opened, because of `error`.

        Returns:
            An entry among those that are there, however busy, counted one more; None if there is
            none, or if it was not the server that failed.
        """
        self._opening -= 1
        if not isinstance(error, BrokenError | DeadlineError):
            return None
        self._prune()
        best = min(self._entries, key=lambda entry: entry.calls, default=None)
        if best is not None:
            best.calls += 1
        return best

    def forget_opening(self) -> None:
        """Expect no channel that is being opened: the threads that opened them are gone."""
        self._opening = 0

    def put(self, entry: Entry) -> None:
        """A call has ended."""
        entry.calls -= 1
        if self._leaving and not entry.calls and entry in self._leaving:
            self._leaving.remove(entry)
            self._gone.append(entry.channel)

    def clear(self) -> list[Channel]:
        """Forget all channels, which are to be closed."""
        entries = [*self._entries, *self._leaving]
        self._entries, self._leaving = [], []
        return [entry.channel for entry in entries] + self.take_gone()

    def take_gone(self) -> list[Channel]:
        """Channels without a call that take no further one, which are to be closed."""
        gone, self._gone = self._gone, []
        return gone

    def __len__(self) -> int:
        """Channels that take calls."""
        return sum(map(_takes_calls, self._entries))

    def _prune(self) -> None:
        for entry in tuple(self._entries):
            if not _takes_calls(entry):
                self._entries.remove(entry)
                if entry.calls:
                    self._leaving.append(entry)
                else:
                    self._gone.append(entry.channel)


def _takes_calls(entry: Entry) -> bool:
    """By what is known without polling its socket."""
    return not (entry.channel.broken or entry.channel.leaving)
