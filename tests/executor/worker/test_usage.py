"""A worker reports what it has used, at most once a second, and nothing where it used nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import msgpack

from forebay import _usage
from forebay._core import Connection
from forebay.executor.worker import usage
from forebay.executor.worker.side import USAGE, Side
from forebay.executor.worker.usage import UsageTeller

HEAD_BYTES = 13


class Told:
    """A worker's teller, a source of its figures, and the server's end of its side socket."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.figures: list[_usage.Figure] = []
        monkeypatch.setattr(_usage, "_sources", {"test": lambda: self.figures})
        self.now = 100.0
        monkeypatch.setattr(usage.time, "monotonic", lambda: self.now)
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.side = Side(theirs)
        ends = socket.socketpair()
        self.peer = ends[1]
        self.teller = UsageTeller(self.side, Connection(ends[0].detach()))

    def record(self) -> dict[tuple[str, ...], Any] | None:
        """What came last: values by name and labels; None: nothing."""
        try:
            packet = self.ours.recv(1 << 16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        assert packet[0] == USAGE
        told = msgpack.decode(packet[HEAD_BYTES:])
        return {(name, *labels): value for name, labels, value in told}

    def close(self) -> None:
        self.ours.close()
        self.side.close()
        self.peer.close()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    told = Told(monkeypatch)
    yield told
    told.close()


def test_a_worker_that_used_nothing_says_nothing(told: Told) -> None:
    """Twenty thousand no-ops a second make twenty thousand records."""
    for _ in range(3):
        told.now += 2
        told.teller.run_ended()
    assert told.record() is None


def test_what_has_changed_is_sent_as_it_is_now(told: Told) -> None:
    """A record that was lost is never made good."""
    told.figures = [("reads", ("a",), 5), ("live", (), 3)]
    told.teller.run_ended()
    assert told.record() == {("reads", "a"): 5, ("live",): 3}
    told.figures = [("reads", ("a",), 5), ("live", (), 7)]
    told.now += 2
    told.teller.run_ended()
    assert told.record() == {("live",): 7}


def test_figures_of_one_key_are_added(told: Told) -> None:
    """Of two arenas only one is seen."""
    told.figures = [("live", (), 3), ("live", (), 4)]
    told.teller.run_ended()
    assert told.record() == {("live",): 7}


def test_what_is_gone_is_sent_as_nought(told: Told) -> None:
    """An arena that was closed is shown until the worker ends."""
    told.figures = [("live", (), 3)]
    told.teller.run_ended()
    told.figures = []
    told.now += 2
    told.record()
    told.teller.run_ended()
    assert told.record() == {("live",): 0}


def test_one_record_a_second_and_the_last_one_is_made_up_for(told: Told) -> None:
    """What the last run of a burst has used is not seen until the next burst."""
    told.figures = [("reads", (), 1)]
    told.teller.run_ended()
    assert told.record() == {("reads",): 1}
    told.figures = [("reads", (), 2)]
    told.teller.run_ended()
    told.teller.tell_if_due()
    assert told.record() is None
    assert told.teller.pending
    told.now += 1.1
    told.teller.tell_if_due()
    assert told.record() == {("reads",): 2}
    assert not told.teller.pending


def test_what_did_not_fit_is_sent_next_time(told: Told) -> None:
    """A server that does not read for a moment loses figures for good."""
    told.figures = [("reads", (), 1)]
    sent = 0
    while told.side.report(b"x" * 10_000):
        sent += 1
    told.teller.run_ended()
    for _ in range(sent):
        told.ours.recv(1 << 16)
    assert told.record() is None
    told.now += 2
    told.teller.run_ended()
    assert told.record() == {("reads",): 1}


def test_what_the_template_had_used_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker counts what was read before it was forked."""
    monkeypatch.setattr(_usage, "_sources", {"test": lambda: [("reads", (), 5)]})
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ends = socket.socketpair()
    side = Side(theirs)
    teller = UsageTeller(side, Connection(ends[0].detach()))
    teller.run_ended()
    with pytest.raises(BlockingIOError):
        ours.recv(1 << 16, socket.MSG_DONTWAIT)
    ours.close()
    side.close()
    ends[1].close()
