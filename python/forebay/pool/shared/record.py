"""A service of a shared pool, as one program keeps it between its leases.

The program keeps its duplicate of the service's socket; other programs have their own, and use it
while the lease is theirs.
So a record is left only at the border between two frames, and what it leaves is told to the lender:
the call whose answer is owed, and whether the service's preface was read.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from forebay import _core
from forebay.errors import BrokenError
from forebay.pool.lend.record import NEVER_BEGUN, PythonRecord
from forebay.pool.programs.program import ProgramRecord
from forebay.pool.programs.socket import ProgramSocket
from forebay.pool.service.reset import Reset
from forebay.rpc import Channel

if TYPE_CHECKING:
    from forebay.pool.shared.kind import SharedKind


class SharedPythonRecord(PythonRecord):
    """A Python service."""

    __slots__ = ("_connection",)

    def __init__(
        self, kind: SharedKind, handle: _core.Handle, connection: _core.Connection
    ) -> None:
        channel = Channel(connection, codec="pickle", name=kind.name)
        channel.generation = handle.tag
        super().__init__(kind, handle, channel, 0)  # type: ignore[arg-type]
        self.pending = None
        self._connection = connection

    @classmethod
    def begun(cls, kind: SharedKind, handle: _core.Handle, descriptor: int) -> SharedPythonRecord:
        """A service that this program makes; the descriptor is given away."""
        record = cls(
            kind,
            handle,
            _core.Connection(descriptor, peer=f"service {kind.name}", by_reference=False),
        )
        assert kind.make is not None
        try:
            record.pending = record.channel.begin("@start", kind.make)
        except BrokenError:
            record.pending = (
                NEVER_BEGUN  # it has ended already: whoever takes its answer learns why
            )
        return record

    @classmethod
    def taken_on(
        cls, kind: SharedKind, handle: _core.Handle, descriptor: int, *, met: bool
    ) -> SharedPythonRecord:
        """A service that another program made; the descriptor is given away."""
        peer = f"service {kind.name}"
        return cls(kind, handle, _core.Connection.resume(descriptor, peer, met))

    @property
    def owing(self) -> bool:
        """Whether an answer is to be read before its use."""
        return self.pending is not None

    def owe(self, call: int) -> None:
        """Its answer to this call, perhaps another program's, is to be read before its use."""
        self._connection.expect_reply(call)
        self.pending = call

    def idle(self) -> bool:
        """Whether another program could go on from here."""
        if self.channel.loop is not None and not super().idle():
            return False
        return self._connection.is_quiescent(0)

    def reset(self) -> int | None:
        """Tell the service to reset itself; the call to be owed, None where it must be ended."""
        if self.kind.resets is not Reset.METHOD:
            return 0
        self.begin_reset()
        call = self._leave_answer()
        return None if call == 0 else call

    def leave_start(self) -> tuple[int, bool] | None:
        """Leave a start: the call to be owed (0: none), and whether its preface was read.

        None where the service must be ended, because something is half said. Raises what its
        constructor raised, where that is known by now.
        """
        if self.channel.loop is not None:
            self.channel.unbind()
        call = 0 if self.answered() else self._leave_answer()
        if not self._connection.is_quiescent(0):
            return None
        return call, self._connection.is_open()

    def _leave_answer(self) -> int:
        """The call that is owed, from now on another's; 0 where a part of it waits to be sent."""
        call, self.pending = self.pending, None
        if call is None or not self._connection.is_quiescent(1):
            return 0
        self._connection.forget_call(call)
        return call

    def part(self) -> None:
        """Close this program's duplicate; the service is not told."""
        self._connection.close_local()


class SharedProgramRecord(ProgramRecord):
    """A program: its socket, and whether it still owes the byte that says ready."""

    __slots__ = ()

    def __init__(self, kind: SharedKind, handle: _core.Handle, descriptor: int) -> None:
        link = ProgramSocket(descriptor)
        super().__init__(kind, handle, link, None, None)  # type: ignore[arg-type]

    @property
    def owing(self) -> bool:
        """Whether the byte that says ready is to be read before its use."""
        return self.owes

    def owe(self, call: int) -> None:
        """The byte that says ready is to be read before its use."""
        self.owes = True

    def reset(self) -> int | None:
        """Nothing resets a program; it owes nothing."""
        return 0

    def leave_start(self) -> tuple[int, bool] | None:
        """Leave a start: 1 where the byte that says ready is owed."""
        return int(not self.answered()), True

    def part(self) -> None:
        """Close this program's duplicate, and its clients; the service is not told."""
        self._link.close()
        self.close()


SharedRecord = SharedPythonRecord | SharedProgramRecord


def begun(kind: SharedKind, handle: _core.Handle, descriptor: int) -> SharedRecord:
    """The record of a service that this program starts."""
    if kind.make is not None:
        return SharedPythonRecord.begun(kind, handle, descriptor)
    return SharedProgramRecord(kind, handle, descriptor)


def taken_on(
    kind: SharedKind, handle: _core.Handle, descriptors: tuple[int, int], *, pid: int, met: bool
) -> SharedRecord:
    """The record of a service that another program started; the descriptors are given away.

    They are its socket and its pidfd, or -1 where its process is not known yet (`pid` is 0).
    """
    connected, process = descriptors
    record: SharedRecord
    if kind.make is not None:
        record = SharedPythonRecord.taken_on(kind, handle, connected, met=met)
    else:
        record = SharedProgramRecord(kind, handle, connected)
        record.owes = False
    if process >= 0:
        record.known(pid, process)
        os.close(process)
    return record
