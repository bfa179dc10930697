"""Which of several channels to one service the next call takes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from forebay.errors import BrokenError, DeadlineError
from forebay.rpc._channel import Channel

__all__ = ["Lot", "Place", "Verdict"]


class Verdict(Enum):
    """What a caller is to do for whom there is no channel now."""

    OPEN = "open another"
    WAIT = "wait for one that is being opened"


@dataclass(slots=True, eq=False)
class Place:
    """A channel, and how many calls of ours are in flight on it."""

    channel: Channel
    calls: int = 0


class Lot:
    """Decides alone: it neither waits nor locks, and opens nothing.

    A channel that is broken, or whose server said goodbye, takes no further call; it is gone once
    its last call has ended.

    Args:
        limit: channels at most, those that are being opened included.
        looks: whether the socket of an idle channel is looked at, which nobody reads otherwise.
    """

    def __init__(self, limit: int, *, looks: bool) -> None:
        self._limit = limit
        self._looks = looks
        self._places: list[Place] = []
        self._leaving: list[Place] = []
        self._opening = 0
        self._gone: list[Channel] = []

    def choose(self) -> Place | Verdict:
        """A place with the fewest calls, with one more now, or what to do for one.

        After `OPEN`, `add` or `give_up` is called once.
        """
        places = self._places
        if self._looks and places and not places[0].calls and places[0].channel.look():
            places[0].calls = 1
            return places[0]  # as always in a program of one thread
        while True:
            self._prune()
            best = min(self._places, key=lambda place: place.calls, default=None)
            room = len(self._places) + self._opening < self._limit
            if best is None or (best.calls and room):
                if not room:
                    return Verdict.WAIT
                self._opening += 1
                return Verdict.OPEN
            if best.calls or not self._looks or best.channel.look():
                best.calls += 1
                return best

    def add(self, channel: Channel) -> Place:
        """A channel was opened; its place, with one call."""
        self._opening -= 1
        place = Place(channel, 1)
        self._places.append(place)
        return place

    def give_up(self, error: BaseException) -> Place | None:
        """No channel was opened, because of `error`.

        Returns:
            A place among those that are there, however busy, with one more call; None if there is
            none, or if it was not the server that failed.
        """
        self._opening -= 1
        if not isinstance(error, BrokenError | DeadlineError):
            return None
        self._prune()
        best = min(self._places, key=lambda place: place.calls, default=None)
        if best is not None:
            best.calls += 1
        return best

    def forget_opening(self) -> None:
        """Those who were opening channels are not there any more; nobody is to wait for them."""
        self._opening = 0

    def put(self, place: Place) -> None:
        """A call has ended."""
        place.calls -= 1
        if self._leaving and not place.calls and place in self._leaving:
            self._leaving.remove(place)
            self._gone.append(place.channel)

    def clear(self) -> list[Channel]:
        """Forget all channels, which are to be closed."""
        places = [*self._places, *self._leaving]
        self._places, self._leaving = [], []
        return [place.channel for place in places] + self.take_gone()

    def take_gone(self) -> list[Channel]:
        """Channels that nobody uses any more, which are to be closed."""
        gone, self._gone = self._gone, []
        return gone

    def __len__(self) -> int:
        """Channels that take calls."""
        return sum(map(_takes_calls, self._places))

    def _prune(self) -> None:
        for place in tuple(self._places):
            if not _takes_calls(place):
                self._places.remove(place)
                if place.calls:
                    self._leaving.append(place)
                else:
                    self._gone.append(place.channel)


def _takes_calls(place: Place) -> bool:
    """As far as is known without a look at its socket."""
    return not (place.channel.broken or place.channel.leaving)
