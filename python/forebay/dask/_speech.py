"""What a peer speaks, found by the first bytes that it sends.

Dask's own comms and ours both expect the other side to understand them: Dask takes our preface for
the length of a message, 768 TiB. So a listener hears its peer before it says anything that only
ours understand. What is heard stays in the socket for whoever goes on with it.

- Ours begin with a preface; over TLS, with a name in ALPN that Dask's own do not offer.
- Dask's own begin with their handshake: its length in 8 bytes, some hundred.
"""

from __future__ import annotations

import asyncio
import enum
import socket
import sys

__all__ = ["ALPN", "Speech", "heard"]

ALPN = "forebay/1"
"""The name of our protocol in TLS; no host's name has a slash, so a hello has it nowhere else."""

PREFACE_MAGIC = b"FBAY"
"""As in crates/transport/src/wire/preface.rs."""

TLS_HANDSHAKE = b"\x16\x03"
"""Type of the first record, and the major version."""

TLS_RECORD_HEADER_BYTES = 5
LENGTH_BYTES = 8
DASK_HANDSHAKE_BYTES_MAX = 1 << 20
"""A first message of Dask is shorter; as text, eight bytes are a much larger number."""

ALPN_ENTRY = bytes([len(ALPN)]) + ALPN.encode()


class Speech(enum.Enum):
    """What a peer speaks."""

    OURS = "Forebay's protocol"
    OURS_IN_TLS = "Forebay's protocol in TLS"
    DASK = "Dask's own tcp://"
    TLS = "TLS without Forebay's protocol, as Dask's own tls://"
    UNKNOWN = "another protocol"


async def heard(connected: socket.socket) -> Speech:
    """Wait for the first bytes of a peer.

    Args:
        connected: nonblocking, and read by nobody else meanwhile.

    Raises:
        OSError: the peer is gone.

    Cancellation: safe; nothing was taken from the socket.
    """
    first = await _peek(connected, LENGTH_BYTES)
    if first.startswith(PREFACE_MAGIC):
        return Speech.OURS
    if first.startswith(TLS_HANDSHAKE):
        length = int.from_bytes(first[3:TLS_RECORD_HEADER_BYTES])
        hello = await _peek(connected, TLS_RECORD_HEADER_BYTES + length)
        return Speech.OURS_IN_TLS if ALPN_ENTRY in hello else Speech.TLS
    length = int.from_bytes(first, sys.byteorder)
    if len(first) == LENGTH_BYTES and 0 < length <= DASK_HANDSHAKE_BYTES_MAX:
        return Speech.DASK
    return Speech.UNKNOWN


async def _peek(connected: socket.socket, count: int) -> bytes:
    """The first `count` bytes that wait in a socket; fewer only if the peer sends no more."""
    found = _peek_now(connected, count)
    if len(found) == count:
        return found
    # Bytes that stay would wake the loop without end: it sleeps until there are enough of them.
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
    try:
        await _readable(connected)
        found = _peek_now(connected, count)
    finally:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    if not found:
        raise ConnectionResetError("it closed the connection before it said anything")
    return found


def _peek_now(connected: socket.socket, count: int) -> bytes:
    try:
        return connected.recv(count, socket.MSG_PEEK)
    except BlockingIOError:
        return b""


async def _readable(connected: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    loop.add_reader(connected.fileno(), _resolve, readable)
    try:
        await readable
    finally:
        loop.remove_reader(connected.fileno())


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
