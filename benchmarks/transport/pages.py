"""Echoes of which every page is written by the sender and read by the receiver.

Over shared memory a message is written where its receiver will read it, in memory that the
connection gives for it; otherwise each end keeps one array, since `send` has let go of it by the
time that it returns.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.stopwatch import Figures
from benchmarks.transport.message import Shape
from benchmarks.transport.processes import Children, call, serve
from benchmarks.transport.round import Reply, measure, nothing, shapes
from benchmarks.transport.side import Handler, Link, side

if TYPE_CHECKING:
    from typing_extensions import Buffer

WORD_BYTES = 8
PAGE_WORDS = 4096 // WORD_BYTES


class Pages:
    """What one end sends and reads."""

    def __init__(self, link: Link, shape: Shape) -> None:
        import numpy as np

        self._numpy: Any = np
        self._words = -(-shape.frame_bytes // WORD_BYTES)
        self._allocate = link.allocate
        self._array: Any = np.zeros(self._words, dtype="uint64")

    def rewritten(self, number: int) -> Any:
        """An array to send, with this number as the first word of every page."""
        array = self._array
        if self._allocate is not None:
            memory = memoryview(self._allocate(self._words * WORD_BYTES))
            array = self._numpy.frombuffer(memory, dtype="uint64")
        array[::PAGE_WORDS] = number
        return array

    def read(self, frames: Sequence[Buffer]) -> int:
        """The number that every page of the frame begins with; ValueError where they differ."""
        (frame,) = frames
        words = self._numpy.frombuffer(memoryview(frame), dtype="uint64")
        firsts = words[::PAGE_WORDS]
        number, total = int(firsts[0]), int(firsts.sum())
        if len(words) != self._words or total != number * len(firsts):
            raise ValueError(f"{len(firsts)} pages begin with {number} and sum up to {total}")
        return number


def answering(shape: Shape) -> Handler:
    """A server that reads every page and answers with pages of its own, of the next number."""

    async def answer(link: Link) -> None:
        pages = Pages(link, shape)
        while True:
            number = pages.read(link.frames(await link.recv()))  # and let go of
            await link.send(pages.rewritten(number + 1))

    return answer


async def exchange(links: list[Link], shape: Shape, seconds: float) -> Reply:
    """Have requests answered for so long."""
    (link,) = links
    pages = Pages(link, shape)
    samples: list[int] = []
    ended = began = time.perf_counter_ns()
    until = began + int(seconds * 1e9)
    number = 1
    while ended < until:
        started = time.perf_counter_ns()
        await link.send(pages.rewritten(number))
        answer = pages.read(link.frames(await link.recv()))
        ended = time.perf_counter_ns()
        samples.append(ended - started)
        if answer != number + 1:
            raise ValueError(f"{number} was answered by {answer}")
        number += 2
    return samples, len(samples) / ((ended - began) / 1e9)


def pages(
    *, wanted: list[str], name: str, seconds: float, warm_up_s: float, **options: Any
) -> Figures:
    """Echoes of every message in `wanted`, over a connection of its own."""
    contestant = side(name, options)
    figures: Figures = {}
    for message in shapes(wanted):
        with Children() as children:
            handler = answering(Shape.parse(message))
            address = children.start(serve, contestant, handler, nothing).reply()
            client = children.start(call, contestant, [address])
            client.reply()
            figures |= measure(
                *(children, [client], exchange, message), seconds=seconds, warm_up_s=warm_up_s
            )
    return figures
