"""A corked channel writes the calls of one turn of its loop together."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from forebay._core import Connection
from forebay.errors import BrokenError, DeadlineError
from forebay.rpc import Channel

Run = Callable[[Coroutine[Any, Any, Any]], Any]


def pair() -> tuple[Channel, socket.socket]:
    """A channel, and the other end, which answers nothing."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    return Channel(Connection(ours.detach())), theirs


def received(peer: socket.socket) -> int:
    """How many bytes have come."""
    try:
        return len(peer.recv(1 << 20, socket.MSG_PEEK))
    except BlockingIOError:
        return 0


def test_calls_of_one_turn_are_written_at_its_end(run: Run) -> None:
    """Each of a thousand submissions costs a system call here, and wakes the server."""
    channel, peer = pair()

    async def main() -> None:
        channel.on_loop.cork()
        before = received(peer)
        tasks = [asyncio.create_task(channel.on_loop.call("f", (it,))) for it in range(10)]
        await asyncio.sleep(0)
        assert received(peer) == before
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert received(peer) - before > 10 * len("f")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(main())
    channel.close()
    peer.close()


def test_answers_of_corked_calls_go_to_their_callers(channel: Channel, run: Run) -> None:
    """Calls that were written together are mixed up."""

    async def main() -> None:
        on_loop = channel.on_loop
        on_loop.cork()
        for _ in range(3):
            calls = [on_loop.call("echo", (it,), timeout=20) for it in range(100)]
            assert await asyncio.gather(*calls) == list(range(100))
        assert await on_loop.call("echo", (b"x" * 1_000_000,), timeout=20) == b"x" * 1_000_000
        on_loop.unbind()

    run(main())


def test_a_corked_call_keeps_its_deadline(run: Run) -> None:
    """A call that waits for the end of a turn waits for ever."""
    channel, peer = pair()

    async def main() -> None:
        channel.on_loop.cork()
        with pytest.raises(DeadlineError):
            await channel.on_loop.call("f", timeout=0.05)

    run(main())
    channel.close()
    peer.close()


def test_a_peer_that_is_gone_ends_corked_calls(run: Run) -> None:
    """What was to be written at the end of a turn is awaited though nobody is there."""
    channel, peer = pair()

    async def main() -> None:
        channel.on_loop.cork()
        task = asyncio.create_task(channel.on_loop.call("f", timeout=20))
        await asyncio.sleep(0)
        peer.close()
        with pytest.raises(BrokenError):
            await task

    run(main())
    channel.close()
