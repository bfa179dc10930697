"""What a stand-in sends its node, and when: the test is the dispatcher and the node."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from forebay import _core
from forebay.executor.engine.link import CALL, REPLY, Link, Record, pack_message
from forebay.executor.engine.stand_in import _MARK, _Relay, _told_line, told_death
from forebay.executor.engine.watched import Watched
from forebay.executor.wire.codec import encoder
from forebay.executor.wire.ids import text_of
from forebay.executor.worker.answers import RETURNED
from forebay.executor.worker.side import _HEAD, RECALL, Side
from forebay.executor.worker.side import RETURNED as GIVEN_BACK

LARGE = bytes(1 << 20)
"""More than a socket takes of an answer that nobody reads."""

TURNS = 20
TURN_MS = 10


class Between:
    """A stand-in between a dispatcher and a node, turned by the test."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        near, far = socket.socketpair()
        self.side, side = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.dispatcher = _core.Connection(ours.detach())
        self.node = Link(far, "the stand-in", 60.0)
        self._link = Link(near, "the node", 60.0)
        self._connection = _core.Connection(theirs.detach(), server=True)
        for end in (self.dispatcher, self._connection):
            end.flush()
        for end in (self.dispatcher, self._connection):
            end.handshake(5.0)
            end.attach()
        self._side = Side(side)
        options = {"items": {"synced": False}, "clients": "/nowhere"}
        self._relay = _Relay(self._link, self._connection, self._side, "short", options)
        self._watched = Watched()

    def submit(self, number: int) -> int:
        """Have the dispatcher send a run; the number of its call."""
        head = encoder().encode(("run", ["work", b"", text_of(number), 1, None, None, None], None))
        return self.dispatcher.start(0, head, None, None, 0)

    def turned(self) -> list[Record]:
        """What the node gets in some turns."""
        got: list[Record] = []
        for _ in range(TURNS):
            self._relay._turn(self._watched.wait(self._relay._wanted(), TURN_MS))
            self.node.flush()
            got += self.node.take()
        return got

    def calls(self) -> list[int]:
        """The numbers of the calls that the node gets in some turns."""
        return [number for kind, number, _ in self.turned() if kind == CALL]

    def answer(self, number: int, head: bytes, *segments: bytes) -> None:
        """Have the node answer a call."""
        self.node.put(REPLY, number, *pack_message(0, head, segments))

    def answered(self) -> dict[int, Any]:
        """What the dispatcher got of its calls, read while the stand-in is turned."""
        got: dict[int, Any] = {}
        for _ in range(TURNS):
            self.dispatcher.flush()
            got.update(self.dispatcher.receive(0))
            self._relay._turn(self._watched.wait(self._relay._wanted(), 1))
        return got

    def close(self) -> None:
        """Close all ends."""
        for end in (self.dispatcher, self._connection, self.node, self._link, self.side):
            end.close()
        self._side.close()
        self._relay._tunnel.close()
        for descriptor in self._relay._wake:
            os.close(descriptor)


@pytest.fixture
def between() -> Iterator[Between]:
    """A stand-in of a worker that runs one at a time."""
    made = Between()
    yield made
    made.close()


def test_the_next_run_is_sent_behind_the_answer_to_the_last(between: Between) -> None:
    """If the stand-in is killed meanwhile, the dispatcher must not take it for one to run again."""
    first, second = between.submit(1), between.submit(2)
    assert between.calls() == [first]
    between.answer(first, b"\x92\x00\xc0", LARGE)
    assert between.calls() == [], "the answer to the first is not sent"
    got = between.answered()
    while first not in got:
        got |= between.answered()
    assert between.calls() == [second]


def test_a_run_that_has_not_come_yet_is_given_back(between: Between) -> None:
    """Its recall has a socket of its own, and may be seen before it."""
    first, second = between.submit(1), between.submit(2)
    between.side.send(_HEAD.pack(RECALL, second, 0))
    assert between.calls() == [first]
    assert select.select((between.side,), (), (), 5.0)[0]
    assert _HEAD.unpack(between.side.recv(64)) == (GIVEN_BACK, second, 0)
    between.answer(first, b"\x92\x00\xc0")
    assert between.calls() == []
    assert bytes(between.answered()[second]) == RETURNED


KEPT_BYTES = 16 << 10
"""Of the last output of a process, by its keeper."""


@pytest.mark.parametrize(
    "last", ["", f"a\n{_MARK}{{}}", f'{_MARK}{{"cause": "exit"}}\n', f"{_MARK}no JSON"]
)
def test_a_death_is_read_whatever_the_worker_printed(last: str) -> None:
    """Its output is told with the death, and may look like one."""
    death = {"cause": "memory", "signal": 9, "last_output": last}
    printed = f"a line\n{_MARK}no JSON\n"
    assert told_death(printed + _told_line(death).decode().rstrip()) == death


@pytest.mark.parametrize("character", ["x", "\n", "\x1b", "\N{SNOWMAN}", "\N{PILE OF POO}"])
def test_a_death_is_read_whatever_was_kept_of_the_output(character: str) -> None:
    """The newest part of it that has room where it is kept, as JSON."""
    last = f"first {character * KEPT_BYTES} last"
    line = b"y" * KEPT_BYTES + _told_line({"cause": "exit", "exit_code": 3, "last_output": last})
    told = told_death(line[-KEPT_BYTES:].decode().rstrip())
    assert told is not None
    assert told["exit_code"] == 3
    assert told["last_output"].endswith(f"{character} last")


@pytest.mark.parametrize("last", ["", "Killed", f"it says {_MARK}{{}}", f"{_MARK}[]", _MARK])
def test_what_tells_no_death_is_read_as_none(last: str) -> None:
    """The stand-in ended by itself."""
    assert told_death(last) is None
