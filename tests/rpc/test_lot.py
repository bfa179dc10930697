"""Which channel a call takes, against a small model, without a socket."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from forebay.errors import BrokenError, ConfigError, DeadlineError
from forebay.rpc._lot import Lot, Place, Verdict

LIMIT = 3


class FakeChannel:
    """What a lot sees of a channel; a goodbye that lies in the socket is found by a look."""

    def __init__(self) -> None:
        self.broken = self.leaving = self.unseen = False

    def look(self) -> bool:
        self.leaving |= self.unseen
        return not (self.broken or self.leaving)


class LotMachine(RuleBasedStateMachine):
    """Calls begin and end while channels are opened, break and say goodbye."""

    calls = Bundle("calls")

    def __init__(self) -> None:
        super().__init__()
        self.lot = Lot(LIMIT, looks=True)
        self.opening = 0
        self.running: dict[Any, int] = {}
        self.closed: set[Any] = set()

    def begin(self, place: Place) -> Place:
        assert place.channel not in self.closed
        self.running[place.channel] = self.running.get(place.channel, 0) + 1
        return place

    def usable(self) -> list[Any]:
        known = [channel for channel in self.running if channel not in self.closed]
        return [channel for channel in known if not (channel.broken or channel.leaving)]

    @rule(target=calls)
    def choose(self) -> Any:
        before = {channel: self.running[channel] for channel in self.usable()}
        chosen = self.lot.choose()
        if chosen is Verdict.OPEN:
            self.opening += 1
            assert all(self.running[channel] for channel in self.usable())
            return multiple()
        if chosen is Verdict.WAIT:
            assert self.opening
            assert not self.usable()
            return multiple()
        assert chosen.channel in self.usable()
        left = {channel: before[channel] for channel in self.usable()}
        assert left[chosen.channel] == min(left.values())
        return self.begin(chosen)

    @rule(target=calls)
    def opened(self) -> Any:
        if not self.opening:
            return multiple()
        self.opening -= 1
        return self.begin(self.lot.add(FakeChannel()))  # type: ignore[arg-type]

    @rule(target=calls, error=st.sampled_from([BrokenError("gone"), DeadlineError("late")]))
    def not_opened(self, error: Exception) -> Any:
        if not self.opening:
            return multiple()
        self.opening -= 1
        place = self.lot.give_up(error)
        if place is None:
            assert not self.usable()
            return multiple()
        assert place.channel in self.usable()
        return self.begin(place)

    @rule(error=st.sampled_from([KeyboardInterrupt(), ConfigError("no such thing")]))
    def opening_ended_otherwise(self, error: BaseException) -> None:
        if self.opening:
            self.opening -= 1
            assert self.lot.give_up(error) is None

    @rule(place=consumes(calls))
    def end(self, place: Place) -> None:
        self.running[place.channel] -= 1
        self.lot.put(place)

    @rule(place=calls, how=st.sampled_from(["broken", "leaving", "unseen"]))
    def lose(self, place: Place, how: str) -> None:
        setattr(place.channel, how, True)

    @invariant()
    def closes_what_nobody_uses(self) -> None:
        for channel in self.lot.take_gone():
            assert not self.running[channel]
            assert channel not in self.closed
            self.closed.add(channel)

    @invariant()
    def keeps_to_its_limit(self) -> None:
        assert len(self.lot) + self.opening <= LIMIT
        assert len(self.lot) == len(self.usable())

    def teardown(self) -> None:
        left = [channel for channel in self.running if channel not in self.closed]
        assert set(self.lot.clear()) == set(left)


LotMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestLot = LotMachine.TestCase
