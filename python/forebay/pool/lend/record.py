"""A running service, as its pool keeps it between leases."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from forebay.errors import BrokenError, BusyError, DeadlineError
from forebay.pool.programs.program import ProgramRecord
from forebay.pool.service.reset import Reset

if TYPE_CHECKING:
    import asyncio

    from forebay import _core
    from forebay.pool.lend.kind import PythonKind
    from forebay.rpc import Channel


GENERATION_MASK = 0xFFFF_FFFF
"""A call carries 32 bits of its lease's generation."""


NEVER_BEGUN = 0
"""In place of the id of a call that could not be sent, because the service had ended."""


class PythonRecord:
    """A Python service: its channel, and the answer that it may still owe.

    A service *owes* an answer after its start and after each reset; its next holder takes it.
    """

    __slots__ = (
        "channel",
        "found",
        "handle",
        "kind",
        "pending",
        "pid",
        "returns",
        "starting",
        "streamed",
    )

    def __init__(
        self, kind: PythonKind, handle: _core.Handle, channel: Channel, pending: int
    ) -> None:
        self.kind = kind
        self.handle = handle
        self.channel = channel
        self.pending: int | None = pending
        self.pid = 0
        self.starting = True
        self.returns = 0
        """How often it was given back."""
        self.found: list[str] | None = None
        """What the canary found that an earlier lease left in it."""
        self.streamed = False
        """Whether it may run a stream: one was begun since it was last known to run none."""

    def finish(self, timeout: float | None) -> None:
        """Take the answer that is owed. Raises what the service raised, or that it broke."""
        if self.pending is not None:
            self._expect_begun()
            self._take(self.channel.finish(self.pending, timeout=timeout))

    async def finish_async(self, timeout: float | None) -> None:
        """The same on the running loop. Cancellation: safe; the answer is still owed."""
        if self.pending is not None:
            self._expect_begun()
            self._take(await self.channel.on_loop.finish(self.pending, timeout=timeout))

    def _take(self, answer: list[str] | None) -> None:
        """Take the answer of a new service (its methods) or of a check (what it found)."""
        self.pending = None
        if not self.starting:
            self.found = answer
        elif answer is not None:
            self.kind.learn(answer)

    def _expect_begun(self) -> None:
        if self.pending == NEVER_BEGUN:
            raise BrokenError(
                f"service {self.kind.name} ended before it was told what to be", delivered="no"
            )

    def begin_reset(self, *, check: bool = False) -> None:
        """Tell the service to reset itself, with `check` to look for changes too; it then owes."""
        # With the next lease's generation: from here on the service refuses calls of this one.
        self.runs_stream()
        self.channel.generation = (self.handle.tag + 1) & GENERATION_MASK
        if check:
            self.pending = self.channel.begin("@check", (self.kind.resets is Reset.METHOD,))
        else:
            self.pending = self.channel.begin("@reset")

    def runs_stream(self) -> bool:
        """Whether a stream that was left may still run in the service.

        Reads what the stream has sent, so that later only the next answer makes the socket
        readable, even if the service closes its generator late.
        """
        if self.streamed:
            self.streamed = self.channel.streams_left > 0
        return self.streamed

    def begin_settling(self) -> None:
        """Have the service answer once the streams that were left have ended; it then owes."""
        self.channel.generation = (self.handle.tag + 1) & GENERATION_MASK
        self.pending = self.channel.begin("@ping")

    def begin_ping(self) -> bool:
        """Ask the service whether it answers; it owes an answer from now on."""
        self.channel.generation = self.handle.tag
        self.pending = self.channel.begin("@ping")
        return True

    def answered(self) -> bool:
        """Take the answer if it is there. Raises as `finish`."""
        try:
            self.finish(0.0)
        except DeadlineError:
            return False
        return True

    def known(self, pid: int, pidfd: int) -> None:
        """Note the service's process: from now on calls also end when it ends."""
        self.pid = pid
        self.starting = False
        self.channel.watch(pidfd)

    def idle(self) -> bool:
        """Whether no call is under way; if so, the channel is released from its event loop."""
        channel = self.channel
        if channel.loop is not None:
            try:
                channel.unbind()
            except BusyError:
                return False
        return not channel.in_flight

    def close(self) -> None:
        """Close the channel; idempotent.

        From any thread: a channel of an event loop is closed in that loop, soon afterwards.
        """
        loop = self.channel.loop
        if loop is None or loop.is_closed() or _runs(loop):
            self.channel.close()
            return
        try:
            loop.call_soon_threadsafe(self.channel.close)
        except RuntimeError:  # the loop was closed meanwhile
            self.channel.close()


Record = PythonRecord | ProgramRecord


def _runs(loop: asyncio.AbstractEventLoop) -> bool:
    import asyncio

    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def socket_of(record: Any) -> socket.socket | None:
    """The socket of a program; None for a Python service."""
    return getattr(record, "socket", None)
