"""Echoes of which every page is written by the sender and read by the receiver.

Each end keeps two arrays in an arena and sends them in turn, never one that the other end may
still be reading: an answer says that the request has been read and let go of.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.stopwatch import Figures
from benchmarks.transport_message import Shape
from benchmarks.transport_processes import Children, call, serve
from benchmarks.transport_round import Reply, measure, nothing, shapes
from benchmarks.transport_side import Handler, Link, side

if TYPE_CHECKING:
    from typing_extensions import Buffer

PAGE_WORDS = 4096 // 8
ARRAYS = 2


class Pages:
    """The arrays of one end."""

    def __init__(self, shape: Shape) -> None:
        import forebay

        words = -(-shape.frame_bytes // 8)
        self._arena = forebay.Arena(words * 8 * (ARRAYS + 1) + (64 << 20))
        self._arrays = [self._arena.empty(words, "uint64") for _ in range(ARRAYS)]
        for array in self._arrays:
            array[:] = 0
        self._turn = 0

    def rewritten(self, number: int) -> Any:
        """The next array, with this number as the first word of every page."""
        array = self._arrays[self._turn]
        self._turn = (self._turn + 1) % ARRAYS
        array[::PAGE_WORDS] = number
        return array

    def read(self, frames: Sequence[Buffer]) -> int:
        """The number that every page of the frame begins with; ValueError where they differ."""
        import numpy as np

        (frame,) = frames
        words = np.frombuffer(memoryview(frame), dtype="uint64")[::PAGE_WORDS]
        number, total = int(words[0]), int(words.sum())
        if len(words) != len(self._arrays[0][::PAGE_WORDS]) or total != number * len(words):
            raise ValueError(f"{len(words)} pages begin with {number} and sum up to {total}")
        return number


def answering(shape: Shape) -> Handler:
    """A server that reads every page and answers with pages of its own, of the next number."""

    async def answer(link: Link) -> None:
        pages = Pages(shape)
        while True:
            number = pages.read(link.frames(await link.recv()))
            await link.send(pages.rewritten(number + 1))

    return answer


async def exchange(links: list[Link], shape: Shape, seconds: float) -> Reply:
    """Have requests answered for so long."""
    (link,) = links
    pages = Pages(shape)
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
