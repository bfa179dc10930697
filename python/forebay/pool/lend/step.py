"""What a procedure of a pool waits for."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, TypeVar

from forebay._steps import Step
from forebay.pool.lend.wait import Deadline, LoopWaiter, wait_until

if TYPE_CHECKING:
    from forebay import _core
    from forebay.pool.lend.pool import ServicePool
    from forebay.pool.lend.record import Record
    from forebay.rpc import Channel

T = TypeVar("T")


class Until:
    """Wait until `found` is true or the deadline passes; the procedure checks which it was."""

    __slots__ = ("_deadline", "_found")

    def __init__(self, found: Callable[[_core.WakeQueue], bool], deadline: Deadline) -> None:
        self._found = found
        self._deadline = deadline

    def block(self, pool: ServicePool) -> None:
        """Wait in this thread."""
        wait_until(pool.core, self._found, self._deadline)

    async def wait(self, pool: ServicePool) -> None:
        """Wait on the running loop."""
        waiter: LoopWaiter = pool.waiter()
        await waiter.wait_until(self._found, self._deadline)


class Settle:
    """Wait for the answer that a service owes."""

    __slots__ = ("_record", "_timeout")

    def __init__(self, record: Record, timeout: float | None) -> None:
        self._record = record
        self._timeout = timeout

    def block(self, pool: ServicePool) -> None:
        """Wait in this thread."""
        self._record.finish(self._timeout)

    async def wait(self, pool: ServicePool) -> None:
        """Wait on the running loop."""
        await self._record.finish_async(self._timeout)


class Answer:
    """Wait for the answer to a call that was begun."""

    __slots__ = ("_call", "_channel", "_timeout")

    def __init__(self, channel: Channel, call: int, timeout: float | None) -> None:
        self._channel = channel
        self._call = call
        self._timeout = timeout

    def block(self, pool: ServicePool) -> None:
        """Wait in this thread."""
        self._channel.finish(self._call, timeout=self._timeout)

    async def wait(self, pool: ServicePool) -> None:
        """Wait on the running loop."""
        await self._channel.on_loop.finish(self._call, timeout=self._timeout)


Steps = Generator[Step["ServicePool", None], None, T]
"""A procedure of a pool; `block` and `awaited` of `forebay._steps` run it."""
