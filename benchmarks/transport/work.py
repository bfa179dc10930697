"""What clients and servers of the transport benchmarks do, the same for every contestant.

Coroutines on both sides; a client has one request in flight on each of its connections.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.transport.message import MARKS, Shape
from benchmarks.transport.side import Handler, Link

REQUEST_BYTES = 100
STREAMED_BYTES = 100
BURST = 20_000
HANDED_OVER = 100  # messages that a sender has together


async def echo(link: Link) -> None:
    """Answer each message with itself."""
    send, recv = link.send, link.recv
    while True:
        await send(await recv())


def answering(shape: Shape) -> Handler:
    """A server that answers a small request with the message of this shape that it asks for."""
    made = shape.messages()  # ahead of the fork: ten servers have them in common

    async def answer(link: Link) -> None:
        messages = [link.message(frames) for frames in made]
        while True:
            request = memoryview(link.frames(await link.recv())[0])
            if request.nbytes != REQUEST_BYTES:
                raise ValueError(f"a request of {request.nbytes} bytes")
            await link.send(messages[request[0]])

    return answer


async def exchange(link: Link, shape: Shape, seconds: float) -> list[int]:
    """Have echoes answered for so long; the nanoseconds that each took."""
    messages = [link.message(frames) for frames in shape.messages()]
    clock, send, recv, frames, check = (
        *(time.perf_counter_ns, link.send, link.recv, link.frames, shape.check),
    )
    samples: list[int] = []
    ended = clock()
    until = ended + int(seconds * 1e9)
    mark = 0
    while ended < until:
        started = clock()
        await send(messages[mark])
        reply = await recv()
        ended = clock()
        samples.append(ended - started)
        check(frames(reply), mark)
        del reply  # its memory is free for the next one
        mark = (mark + 1) % MARKS
    return samples


async def gather(links: Sequence[Link], shape: Shape, seconds: float) -> list[int]:
    """Ask all at once, again and again; the nanoseconds until the last had answered."""
    requests = [
        [link.message([bytes([mark]) * REQUEST_BYTES]) for mark in range(MARKS)] for link in links
    ]

    async def ask(link: Link, request: Any, mark: int) -> None:
        await link.send(request)
        shape.check(link.frames(await link.recv()), mark)

    samples: list[int] = []
    ended = time.perf_counter_ns()
    until = ended + int(seconds * 1e9)
    mark = 0
    while ended < until:
        started = time.perf_counter_ns()
        await asyncio.gather(
            *(ask(link, of[mark], mark) for link, of in zip(links, requests, strict=True))
        )
        ended = time.perf_counter_ns()
        samples.append(ended - started)
        mark = (mark + 1) % MARKS
    return samples


async def swallow(link: Link) -> None:
    """Take messages that nobody waits for, and answer once after each `BURST` of them."""
    stream = link.stream
    assert stream is not None
    answer = link.message([b"taken"])
    take, frame, taken = stream.take, stream.frame, 0
    while True:
        messages = await take()
        taken += len(messages)
        for message in messages:
            if len(frame(message)) != STREAMED_BYTES:
                raise ValueError(f"a message of {len(frame(message))} bytes")
        if taken >= BURST:
            taken -= BURST
            await link.send(answer)


async def pour(link: Link, seconds: float) -> list[int]:
    """Send burst after burst without waiting in between; nanoseconds until one was answered."""
    stream = link.stream
    assert stream is not None
    messages = [stream.message(os.urandom(STREAMED_BYTES)) for _ in range(HANDED_OVER)]
    samples: list[int] = []
    ended = time.perf_counter_ns()
    until = ended + int(seconds * 1e9)
    while ended < until:
        started = time.perf_counter_ns()
        for _ in range(BURST // HANDED_OVER):
            await stream.put(messages)
        answer = bytes(link.frames(await link.recv())[0])
        ended = time.perf_counter_ns()
        samples.append(ended - started)
        if answer != b"taken":
            raise ValueError(f"a burst was answered by {answer!r}")
    return samples
