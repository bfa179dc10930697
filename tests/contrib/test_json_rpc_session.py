from __future__ import annotations

import contextlib
import itertools
import json
import socket
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay import ConfigError, LimitError, ProtocolError
from forebay.contrib.json_rpc import session as session_module
from forebay.contrib.json_rpc.link import REFUSED_BYTES_MAX, JsonRpcLink
from forebay.contrib.json_rpc.session import Answer, Notification, Request, Session
from forebay.pool.lend.wait import Deadline

MESSAGES = [
    {"jsonrpc": "2.0", "id": 1, "result": {"text": "one\nline"}},
    {"jsonrpc": "2.0", "method": "progress", "params": [1, 2]},
    {"jsonrpc": "2.0", "id": 2, "error": {"code": -32000, "message": "no", "data": [7]}},
    {"jsonrpc": "2.0", "id": "a", "method": "ping"},
    {"jsonrpc": "2.0", "id": 3, "result": None},
]
STREAM = b"".join(json.dumps(message).encode() + b"\r\n" for message in MESSAGES)


def begun(count: int) -> Session:
    """A session that waits for the answers to so many calls."""
    session = Session()
    for _ in range(count):
        session.begin("work", (), {})
    return session


def fed(session: Session, data: bytes) -> list[object]:
    """What came of it."""
    return list(session.feed(data))


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_messages_are_the_same_however_the_bytes_are_cut(cuts: list[int]) -> None:
    """A pipe keeps no borders."""
    session, got = begun(3), []
    borders = [0, *sorted(cuts), len(STREAM)]
    for start, end in itertools.pairwise(borders):
        got += fed(session, STREAM[start:end])
    first, told, failed, asked, empty = got
    assert first == Answer(1, {"text": "one\nline"}, None)
    assert told == Notification("progress", [1, 2])
    assert isinstance(failed, Answer)
    assert failed.error is not None
    assert (failed.error.code, failed.error.data) == (-32000, [7])
    assert isinstance(asked, Request)
    assert json.loads(asked.refusal)["id"] == "a"
    assert json.loads(asked.refusal)["error"]["code"] == -32601
    assert empty == Answer(3, None, None)
    assert not session.waiting


def test_calls_are_numbered_and_carry_their_parameters() -> None:
    """By position or by name, as the specification has it."""
    session = Session()
    number, line = session.begin("add", (1, 2), {})
    assert line.endswith(b"\n")
    assert json.loads(line) == {"jsonrpc": "2.0", "id": number, "method": "add", "params": [1, 2]}
    other, line = session.begin("add", (), {"a": 1})
    assert other != number
    assert json.loads(line)["params"] == {"a": 1}
    assert json.loads(session.notification("bye", (), {})) == {"jsonrpc": "2.0", "method": "bye"}


def test_parameters_that_cannot_be_said_are_refused_before_anything_is_sent() -> None:
    """A mistake of the caller does not break the conversation."""
    session = Session()
    with pytest.raises(ConfigError, match="not both"):
        session.begin("add", (1,), {"a": 1})
    with pytest.raises(ConfigError, match="JSON"):
        session.begin("add", (object(),), {})
    assert not session.waiting


@pytest.mark.parametrize(
    "line",
    [
        b"hello\n",
        b"[]\n",
        b'{"id": 1}\n',
        b'{"id": 1, "error": "no"}\n',
        b'{"id": null, "error": {"code": -32700}}\n',
        b'{"id": "1", "result": 1}\n',
        b"\xff\xfe\n",
    ],
)
def test_a_line_that_is_no_message_breaks_the_conversation(line: bytes) -> None:
    """Text on stdout would otherwise be taken for silence."""
    with pytest.raises(ProtocolError):
        fed(begun(1), line)


def test_an_answer_that_nobody_asked_for_is_dropped() -> None:
    """A second answer to a call reaches nobody."""
    session = begun(1)
    assert len(fed(session, b'{"id": 1, "result": 1}\n{"id": 1, "result": 2}\n\n')) == 1


def test_a_line_without_end_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program cannot fill the memory of its client."""
    monkeypatch.setattr(session_module, "MESSAGE_BYTES_MAX", 1000)
    session = begun(1)
    assert fed(session, b"x" * 1000) == []
    with pytest.raises(LimitError) as caught:
        fed(session, b"x")
    assert (caught.value.limit, caught.value.value) == (1000, 1001)


def test_a_program_that_asks_and_never_reads_is_ended_by_a_limit() -> None:
    """The answers to what it asks must not fill the memory of its caller."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        link = JsonRpcLink(ours, None)
        waiter = link.begin("sum", (1,), {})
        ask = b'{"jsonrpc": "2.0", "id": 1, "method": "who"}\n'

        def program() -> None:
            with contextlib.suppress(OSError):  # it is told by its end of file
                for _ in range(400):
                    theirs.sendall(ask * 100)

        asking = threading.Thread(target=program)
        asking.start()
        with pytest.raises(LimitError, match="asks without reading its answers") as caught:
            link.wait(waiter, Deadline(20.0))
        assert caught.value.limit == REFUSED_BYTES_MAX
        link.close()
        theirs.shutdown(socket.SHUT_RDWR)
        asking.join(20)
        assert not asking.is_alive()


def test_a_program_that_asks_much_at_once_and_reads_the_answers_goes_on() -> None:
    """A language server asks for hundreds of settings in one go before it reads any."""
    bursts, burst = 5, 1_500
    ours, theirs = socket.socketpair()
    with ours, theirs:
        link = JsonRpcLink(ours, None)
        waiter = link.begin("sum", (1,), {})
        ask = b'{"jsonrpc": "2.0", "id": 1, "method": "who"}\n'
        refused: list[int] = []

        def program() -> None:
            with contextlib.suppress(OSError), theirs.makefile("rb") as lines:
                lines.readline()  # the call
                for _ in range(bursts):
                    theirs.sendall(ask * burst)
                    refused.extend(len(lines.readline()) for _ in range(burst))
                theirs.sendall(b'{"jsonrpc": "2.0", "id": 1, "result": 2}\n')

        asking = threading.Thread(target=program)
        asking.start()
        try:
            answer = link.wait(waiter, Deadline(20.0))
        finally:
            theirs.shutdown(socket.SHUT_RDWR)
            asking.join(20)
        assert answer.result == 2
        assert len(refused) == bursts * burst
        assert sum(refused) > bursts * REFUSED_BYTES_MAX
        link.close()


def test_who_is_overtaken_by_the_thread_that_reads_takes_its_answer() -> None:
    """The answer came while this thread was about to wait for room to write: it is not slept over.

    A race of two threads, played by one: what the other does comes where it does the most harm.
    """

    class Overtaken(JsonRpcLink):
        def _step(self, leads: bool, deadline: Deadline) -> None:
            while not self.flush():
                theirs.recv(1 << 20)
            theirs.sendall(b'{"jsonrpc": "2.0", "id": 1, "result": 2}\n')
            self.receive()
            super()._step(leads, deadline)

    ours, theirs = socket.socketpair()
    with ours, theirs:
        link = Overtaken(ours, None)
        waiter = link.begin("sum", ("x" * 1_000_000,), {})
        assert not link.flush(), "the socket holds all of it"
        link._reading = True  # by the other thread
        begun = time.monotonic()
        assert link.wait(waiter, Deadline(20.0)).result == 2
        assert time.monotonic() - begun < 10
        link.close()
