"""Which channel a call takes, against a small model, without a socket."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from forebay.errors import BrokenError, ConfigError, DeadlineError
from forebay.rpc.client.channel_set import ChannelSet, Entry, Verdict

LIMIT = 3


class FakeChannel:
    """What a set sees of a channel; polling finds a goodbye that lies in the socket."""

    def __init__(self) -> None:
        self.broken = self.leaving = self.unseen = False

    def poll(self) -> bool:
        self.leaving |= self.unseen
        return not (self.broken or self.leaving)


class ChannelSetMachine(RuleBasedStateMachine):
    """Calls begin and end while channels are opened, break and say goodbye."""

    calls = Bundle("calls")

    def __init__(self) -> None:
        super().__init__()
        self.channels = ChannelSet(LIMIT, polls=True)
        self.opening = 0
        self.running: dict[Any, int] = {}
        self.closed: set[Any] = set()

    def begin(self, entry: Entry) -> Entry:
        assert entry.channel not in self.closed
        self.running[entry.channel] = self.running.get(entry.channel, 0) + 1
        return entry

    def usable(self) -> list[Any]:
        known = [channel for channel in self.running if channel not in self.closed]
        return [channel for channel in known if not (channel.broken or channel.leaving)]

    @rule(target=calls)
    def choose(self) -> Any:
        before = {channel: self.running[channel] for channel in self.usable()}
        chosen = self.channels.choose()
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
        return self.begin(self.channels.add(FakeChannel()))  # type: ignore[arg-type]

    @rule(target=calls, error=st.sampled_from([BrokenError("gone"), DeadlineError("late")]))
    def not_opened(self, error: Exception) -> Any:
        if not self.opening:
            return multiple()
        self.opening -= 1
        entry = self.channels.give_up(error)
        if entry is None:
            assert not self.usable()
            return multiple()
        assert entry.channel in self.usable()
        return self.begin(entry)

    @rule(error=st.sampled_from([KeyboardInterrupt(), ConfigError("no such thing")]))
    def opening_ended_otherwise(self, error: BaseException) -> None:
        if self.opening:
            self.opening -= 1
            assert self.channels.give_up(error) is None

    @rule(entry=consumes(calls))
    def end(self, entry: Entry) -> None:
        self.running[entry.channel] -= 1
        self.channels.put(entry)

    @rule(entry=calls, how=st.sampled_from(["broken", "leaving", "unseen"]))
    def lose(self, entry: Entry, how: str) -> None:
        setattr(entry.channel, how, True)

    @invariant()
    def closes_unused_channels(self) -> None:
        for channel in self.channels.take_gone():
            assert not self.running[channel]
            assert channel not in self.closed
            self.closed.add(channel)

    @invariant()
    def keeps_to_its_limit(self) -> None:
        assert len(self.channels) + self.opening <= LIMIT
        assert len(self.channels) == len(self.usable())

    def teardown(self) -> None:
        left = [channel for channel in self.running if channel not in self.closed]
        assert set(self.channels.clear()) == set(left)


ChannelSetMachine.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None
)
TestChannelSet = ChannelSetMachine.TestCase
