"""An event loop's way to a queue: one descriptor to watch, one wake-up for all that is done.

A port belongs to its loop's thread. It is made when the first `async with` of a queue, or of a file
on it, is entered in a loop, and given up when the last one is left. Each `async with` has a face of
its own, which is left in the loop that entered it, whatever other loops enter meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, TypeVar

from forebay import _forks
from forebay.errors import ClosedError, Error

if TYPE_CHECKING:
    from forebay._core import BlockBatch
    from forebay.blockio.files.queue import Queue

__all__ = ["LoopPort", "enter", "enter_face", "leave_face"]

Face = TypeVar("Face")

LEAVE_S: Final = 5.0
"""How long the last one waits for batches of others; after that they are cancelled."""


class LoopPort:
    """What the asyncio faces of one queue share in one event loop."""

    def __init__(self, queue: Queue, loop: asyncio.AbstractEventLoop):
        _forks.watch(queue)
        self.core = queue.port(queue._io_thread)
        self.users = 0
        self._queue = queue
        self._loop = loop
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._descriptor = self.core.fileno()
        loop.add_reader(self._descriptor, self._turn)

    async def result(self, ticket: int, batch: BlockBatch) -> Any:
        """Wait for the end of a batch, and return its result; cancellation abandons the batch."""
        if not batch.done:
            future = self._waiting[ticket] = self._loop.create_future()
            try:
                await future
            finally:
                if self._waiting.pop(ticket, None) is not None:
                    with contextlib.suppress(ClosedError):
                        self.core.detach(ticket, batch)
        return batch.result()

    async def leave(self) -> None:
        """Be used by one less; the last one waits for what is in flight, and gives the port up."""
        self.users -= 1
        if self.users:
            return
        self._queue._loops.pop(self._loop, None)
        try:
            if self._waiting:
                await asyncio.wait(tuple(self._waiting.values()), timeout=LEAVE_S)
        finally:
            self._close()

    def _close(self) -> None:
        self._loop.remove_reader(self._descriptor)
        _, done = self.core.drain(0.0)
        self._resolve(done)
        self._fail(ClosedError("the block queue's port to this event loop was closed"))
        self.core.close()

    def _turn(self) -> None:
        try:
            done = self.core.turn()
        except Error as error:  # the kernel gives no completions any more
            self._loop.remove_reader(self._descriptor)
            self._fail(error)
            return
        self._resolve(done)

    def _resolve(self, done: list[int]) -> None:
        for ticket in done:
            future = self._waiting.pop(ticket, None)
            if future is not None and not future.done():
                future.set_result(None)

    def _fail(self, error: Error) -> None:
        for ticket in tuple(self._waiting):
            future = self._waiting.pop(ticket)
            if not future.done():
                future.set_exception(error)


def enter(queue: Queue) -> LoopPort:
    """Give the running loop's port to `queue`; `leave` it once."""
    loop = asyncio.get_running_loop()
    for other in tuple(queue._loops):
        if other.is_closed():
            queue._loops.pop(other).core.close()
    port = queue._loops.get(loop)
    if port is None:
        port = queue._loops[loop] = LoopPort(queue, loop)
    port.users += 1
    return port


def enter_face(faces: dict[asyncio.AbstractEventLoop, list[Face]], face: Face) -> Face:
    """Note that the running loop has entered `face`, and return it."""
    for other in tuple(faces):
        if other.is_closed():
            faces.pop(other, None)
    faces.setdefault(asyncio.get_running_loop(), []).append(face)
    return face


def leave_face(faces: dict[asyncio.AbstractEventLoop, list[Face]]) -> Face:
    """The face that the running loop entered last; it has left that one."""
    loop = asyncio.get_running_loop()
    entered = faces[loop]
    face = entered.pop()
    if not entered:
        del faces[loop]
    return face
