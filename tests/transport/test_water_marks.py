"""Peers that do not read, and sockets that take little."""

from __future__ import annotations

import socket
import threading

import numpy as np
import pytest

from forebay._core import Connection
from forebay.errors import DeadlineError, LimitError


def pair(send_buffer: int | None = None) -> tuple[Connection, Connection]:
    left, right = socket.socketpair()
    if send_buffer is not None:
        for end in (left, right):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    return Connection(left.detach(), peer="server"), Connection(
        right.detach(), server=True, peer="caller"
    )


def echo(server: Connection) -> None:
    while (call := server.next_call()) is not None:
        number, codec, head, segments, *_ = call
        if not server.reply(number, codec, bytes(head), segments):
            server.drain()


@pytest.mark.parametrize("size", [1, 5_000, 300_000])
def test_a_tiny_send_buffer_changes_nothing(size: int) -> None:
    """Frames that leave in many small parts arrive whole."""
    caller, server = pair(send_buffer=1)
    thread = threading.Thread(target=echo, args=(server,))
    thread.start()
    segment = np.arange(size, dtype=np.uint8)
    for _ in range(5):
        raised, _, head, segments = caller.call(0, b"head", [segment, b"second"], 20.0, 0)
        assert (raised, head) == (False, b"head")
        assert np.array_equal(np.frombuffer(segments[0], np.uint8), segment)
        assert bytes(segments[1]) == b"second"
    caller.close()
    thread.join(20)


def test_a_caller_waits_for_a_peer_that_does_not_read() -> None:
    """Memory does not grow: above the high mark a call waits for room, with its deadline."""
    caller, server = pair()
    body = b"x" * 60_000
    while caller.outbox_bytes <= 512 << 10:
        caller.start(0, body, None, None, 0)
    with pytest.raises(DeadlineError):
        caller.call(0, body, None, 0.1, 0)
    thread = threading.Thread(target=echo, args=(server,))
    thread.start()
    assert caller.call(0, b"last", None, 20.0, 0) == b"last"
    caller.close()
    thread.join(20)


def test_lent_buffers_are_given_back() -> None:
    """An array may be resized again once its call is done."""
    caller, server = pair()
    thread = threading.Thread(target=echo, args=(server,))
    thread.start()
    buffer = bytearray(1_000_000)
    caller.call(0, b"", [buffer], 20.0, 0)
    buffer.append(1)
    caller.close()
    thread.join(20)


def test_segments_of_any_format_go_and_scattered_ones_are_refused() -> None:
    """What is sent is the memory, whatever its item type."""
    caller, server = pair()
    caller.start(0, b"", [np.arange(10.0), memoryview(b"abc")], None, 0)
    call = server.next_call(20)
    assert call is not None
    assert [bytes(segment) for segment in call[3] or []] == [np.arange(10.0).tobytes(), b"abc"]
    with pytest.raises(BufferError):
        caller.start(0, b"", [np.arange(10)[::2]], None, 0)


def test_too_many_segments_are_refused_before_sending() -> None:
    """The limit is named, and the connection stays usable."""
    caller, server = pair()
    with pytest.raises(LimitError, match="segments_max") as caught:
        caller.start(0, b"", [b"x"] * 1025, None, 0)
    assert (caught.value.limit, caught.value.value) == (1024, 1025)
    caller.start(0, b"fine", None, None, 0)
    call = server.next_call(20)
    assert call is not None
    assert call[2] == b"fine"
