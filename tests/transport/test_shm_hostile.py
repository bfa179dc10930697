"""A peer that lies in shared memory or on the lifeline: an error that says so, never a crash."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator

import pytest

from forebay.errors import BrokenError, ProtocolError
from tests.transport.shm_peer import (
    CHUNK,
    CONTROL_BYTES,
    HEAD,
    HELLO,
    PREFACE,
    RETURNED,
    RING,
    SEAL_FUTURE_WRITE,
    SEAL_GROW,
    SEAL_SHRINK,
    TAIL,
    Liar,
    name,
    named_message,
    record,
)

TIMEOUT_S = 20.0


@pytest.fixture
def liar() -> Iterator[Liar]:
    made = Liar()
    yield made
    made.close()


def met(liar: Liar, data: bytes = b"") -> None:
    """Past the handshake, with more in the ring behind it."""
    liar.hello()
    liar.write(PREFACE + data)
    liar.core.handshake_blocking(TIMEOUT_S)


@pytest.mark.parametrize(
    "lie",
    [
        lambda liar: liar.put(TAIL, 1 << 40),
        lambda liar: liar.put(TAIL, (1 << 64) - 1),
        lambda liar: liar.put(TAIL, len(PREFACE) - 1),
        lambda liar: liar.put(TAIL, len(PREFACE) + 262_145),
    ],
    ids=["far", "wrapped", "back", "one too far"],
)
def test_a_wild_tail_is_refused(liar: Liar, lie: Callable[[Liar], None]) -> None:
    """Nothing outside of the ring is read."""
    met(liar)
    lie(liar)
    with pytest.raises(ProtocolError, match="tail is 0x") as caught:
        liar.core.recv_blocking(TIMEOUT_S)
    assert (caught.value.peer, caught.value.offset) == ("the tester", 32)
    assert liar.core.closed


@pytest.mark.parametrize("head", [1 << 40, (1 << 64) - 1, 1_000_000])
def test_a_wild_head_is_refused(liar: Liar, head: int) -> None:
    """Nothing that was not read is overwritten."""
    met(liar)
    liar.put(HEAD, head)
    with pytest.raises(ProtocolError, match="head is 0x"):
        liar.core.send_blocking(b"x", TIMEOUT_S)
    assert liar.core.closed


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (b"\x01" + name(offset=(1 << 20) - 7), "not in the peer's memory"),
        (b"\x01" + name(offset=(1 << 64) - 4), "not in the peer's memory"),
        (b"\x01" + name(size=(1 << 64) - 1), "not in the peer's memory"),
        (b"\x01" + name(chunk=7), "not in the peer's memory"),
        (b"\x01" + name(place=1024), "not in the peer's memory"),
        (b"\x01" + name(generation=0), "not in the peer's memory"),
        (b"\x01" + name()[:-1], "do not fit"),
        (b"\x00", "do not fit"),
        (b"\x02", "do not fit"),
        (b"", "do not fit"),
    ],
)
def test_names_of_what_is_not_there_are_refused(liar: Liar, table: bytes, message: str) -> None:
    """No number of a name is believed."""
    liar.hello()
    liar.write(PREFACE + named_message(table))
    with pytest.raises(ProtocolError, match=message):
        liar.core.recv_blocking(TIMEOUT_S)


def test_a_name_within_the_peers_memory_is_a_frame(liar: Liar) -> None:
    """What the tests above refuse is refused for its numbers alone."""
    met(liar, named_message(b"\x01" + name(offset=500_000, size=100_000)))
    [frame] = liar.core.recv_blocking(TIMEOUT_S)
    liar.map[500_000:500_003] = b"abc"
    assert bytes(memoryview(frame)[:3]) == b"abc"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"G" * 32, "not a Forebay peer"),
        (record(HELLO)[:20], "20 bytes"),
        (record(9), "kind 9"),
        (record(CHUNK), "before the hello"),
        (record(HELLO, size=4096), "4096 bytes"),
        (record(HELLO, offset=(1 << 20) - 64), "control block"),
        (record(HELLO, offset=7), "control block"),
        (record(HELLO, offset=(1 << 64) - 64), "control block"),
    ],
)
def test_wrong_records_on_the_lifeline_are_refused(liar: Liar, data: bytes, message: str) -> None:
    """The handshake ends there."""
    liar.hello(data)
    with pytest.raises(ProtocolError, match=message):
        liar.core.handshake_blocking(TIMEOUT_S)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_hello_without_its_descriptors_is_refused(liar: Liar, count: int) -> None:
    """None is looked for."""
    liar.hello(descriptors=count)
    with pytest.raises(ProtocolError, match="descriptors"):
        liar.core.handshake_blocking(TIMEOUT_S)


def test_a_second_hello_is_refused(liar: Liar) -> None:
    """What is mapped is not replaced under a reader."""
    met(liar)
    liar.hello()
    with pytest.raises(ProtocolError, match="second hello"):
        liar.core.recv_blocking(TIMEOUT_S)


@pytest.mark.parametrize(
    "seals", [0, SEAL_GROW | SEAL_FUTURE_WRITE, SEAL_SHRINK | SEAL_FUTURE_WRITE]
)
def test_memory_that_may_shrink_is_refused(seals: int) -> None:
    """Reading it could end this process."""
    liar = Liar(seals=seals)
    try:
        liar.hello()
        with pytest.raises(ProtocolError, match="size is not sealed"):
            liar.core.handshake_blocking(TIMEOUT_S)
    finally:
        liar.close()


def test_a_bell_that_could_block_is_refused(liar: Liar) -> None:
    """Waking a peer never waits for it."""
    os.set_blocking(liar.bell, True)
    liar.hello()
    with pytest.raises(ProtocolError, match="descriptors"):
        liar.core.handshake_blocking(TIMEOUT_S)


def test_too_many_chunks_are_refused(liar: Liar) -> None:
    """Descriptors and mappings of this process are not the peer's to use up."""
    met(liar)
    for chunk in range(1, 65):
        socket.send_fds(liar.lifeline, [record(CHUNK, chunk)], [liar.memory])
    with pytest.raises(ProtocolError, match="windows_max"):
        liar.core.recv_blocking(TIMEOUT_S)


def test_returned_frames_that_were_never_lent_change_nothing(liar: Liar) -> None:
    """A peer can give back what it was lent, and nothing else."""
    met(liar)
    liar.core.send_blocking(b"x" * 100_000, TIMEOUT_S)
    assert liar.core.metrics()["lent_frames"] == 1
    for place in range(1024):
        liar.put(RETURNED + 8 * place, 998)
    assert liar.core.metrics()["lent_frames"] == 1
    liar.put(RETURNED, 3)  # the first generation, held
    assert liar.core.metrics()["lent_frames"] == 1
    liar.put(RETURNED, 2)
    assert liar.core.metrics()["lent_frames"] == 0


def test_an_end_in_the_middle_of_a_message_is_told(liar: Liar) -> None:
    """What is missing is not taken for an orderly end."""
    met(liar, named_message(b"\x01" + name())[:-3])
    liar.lifeline.close()
    with pytest.raises(BrokenError, match="middle"):
        liar.core.recv_blocking(TIMEOUT_S)
    assert not liar.core.closed_cleanly


def test_the_layout_of_these_tests_is_that_of_the_core(liar: Liar) -> None:
    """Else they would poke at nothing."""
    assert RING + 262_144 == CONTROL_BYTES
    met(liar)
