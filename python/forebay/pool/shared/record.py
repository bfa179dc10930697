"""A service of a shared pool, as one program keeps it between its leases.

Each program keeps a duplicate of the service's socket, and uses it while it has the lease.
So a program gives a service back only between two frames, and reports to the lender where it
stopped: the call whose answer is owed, and whether the service's preface was read.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from forebay import _core
from forebay.errors import BrokenError
from forebay.pool.lend.kind import CommandKind
from forebay.pool.lend.record import NEVER_BEGUN, PythonRecord
from forebay.pool.programs.program import ProgramRecord
from forebay.pool.programs.socket import ProgramSocket
from forebay.pool.service.reset import Reset
from forebay.rpc import Channel

if TYPE_CHECKING:
    from forebay.pool.lend.kind import PythonKind
    from forebay.pool.shared.kind import SharedCommandKind, SharedKind


class SharedPythonRecord(PythonRecord):
    """A Python service."""

    __slots__ = ("_connection", "checked")

    def __init__(
        self, kind: PythonKind, handle: _core.Handle, connection: _core.Connection
    ) -> None:
        channel = Channel(connection, codec="pickle", name=kind.name)
        channel.generation = handle.tag
        super().__init__(kind, handle, channel, 0)
        self.pending = None
        self._connection = connection
        self.checked = False
        """Whether it is looked at, at the end of its lease, for what that leaves in it."""

    @classmethod
    def begun(
        cls, kind: SharedKind, handle: _core.Handle, descriptor: int, *, canary: bool
    ) -> SharedPythonRecord:
        """The record of a service that this program makes; takes the descriptor over."""
        return cls._told(kind, handle, descriptor, "@start", kind.made(canary=canary))

    @classmethod
    def copied(cls, kind: PythonKind, handle: _core.Handle, descriptor: int) -> SharedPythonRecord:
        """The record of a copy that its original is to make; takes the descriptor over."""
        return cls._told(kind, handle, descriptor, "@branched", ())

    @classmethod
    def _told(
        cls,
        kind: PythonKind,
        handle: _core.Handle,
        descriptor: int,
        call: str,
        args: tuple[Any, ...],
    ) -> SharedPythonRecord:
        """The record of a service that answers its first call when it is ready."""
        record = cls(kind, handle, _core.Connection(descriptor, peer=f"service {kind.name}"))
        try:
            record.pending = record.channel.begin(call, args)
        except BrokenError:
            record.pending = NEVER_BEGUN  # it has ended already: taking its answer raises why
        return record

    @classmethod
    def taken_on(
        cls, kind: SharedKind, handle: _core.Handle, descriptor: int, *, met: bool
    ) -> SharedPythonRecord:
        """The record of a service that another program made; takes the descriptor over."""
        peer = f"service {kind.name}"
        return cls(kind, handle, _core.Connection.resume(descriptor, peer, met))

    def known(self, pid: int, pidfd: int) -> None:
        """Note the service's process; takes the descriptor over."""
        self.pid = pid
        self.starting = False
        self.channel.adopt(pidfd)

    def fileno(self) -> int:
        """Its socket, which hangs up when the service ends."""
        return self._connection.fileno()

    @property
    def report(self) -> bytes:
        """What later holders must know: the methods of what a factory made."""
        kind: Any = self.kind  # of a shared pool, or its kind of copies
        report: bytes = kind.report()
        return report

    @property
    def owing(self) -> bool:
        """Whether an answer must be read before the service is used."""
        return self.pending is not None

    def owe(self, call: int) -> None:
        """Note a call, perhaps of another program, whose answer must be read before its use."""
        self._connection.expect_reply(call)
        self.pending = call

    def idle(self) -> bool:
        """Whether another program could use the socket from here on."""
        if self.channel.loop is not None and not super().idle():
            return False
        return self._connection.is_quiescent(0)

    def reset(self) -> int | None:
        """Tell the service to reset itself.

        Returns:
            The call whose answer it owes, 0 for none; None if the service must be ended.
        """
        if self.kind.resets is not Reset.METHOD and not self.checked:
            return 0
        self.begin_reset(check=self.checked)
        call = self._leave_answer()
        return None if call == 0 else call

    def leave_start(self) -> tuple[int, bool, bytes] | None:
        """Stop waiting for a start.

        Returns:
            The call whose answer the service owes (0: none), whether its preface was read, and what
            later holders must know, as far as it was answered; None if the service must be ended,
            because a frame was sent or received in part.

        Raises what its constructor raised, if its answer has come.
        """
        if self.channel.loop is not None:
            self.channel.unbind()
        answered = self.answered()
        call = 0 if answered else self._leave_answer()
        if not self._connection.is_quiescent(0):
            return None
        return call, self._connection.is_open(), self.report if answered else b""

    def _leave_answer(self) -> int:
        """Forget the call whose answer is owed; that call, or 0: none is, or a frame is partial."""
        call, self.pending = self.pending, None
        if call is None or not self._connection.is_quiescent(1):
            return 0
        self._connection.forget_call(call)
        return call

    def lend_as(self, kind: Any) -> None:
        """A Python service is of one kind, however it was asked for."""

    def renew(self) -> None:
        """Go on after another program has used the service, which keeps what it was lent."""
        self._connection.renew()

    def close_local(self) -> None:
        """Close this program's duplicate of the socket without notifying the service.

        One that is on an event loop is held still, with the pool closed under it: its calls end.
        """
        if self.channel.loop is not None:
            self.close()  # else the kernel may forget what the loop watches before it has told it
        else:
            self._connection.close_local()


class SharedProgramRecord(ProgramRecord):
    """A program: its sockets, and whether it still has to become ready."""

    __slots__ = ()

    def fileno(self) -> int:
        """Its socket to the keeper, which hangs up when the program ends."""
        return self._link.fileno()

    @property
    def owing(self) -> bool:
        """Whether it must become ready before its use."""
        return self.owes

    def owe(self, call: int) -> None:
        """Note that it must become ready before its use."""
        self.owes = True

    def reset(self) -> int | None:
        """Nothing resets a program; it owes nothing."""
        return 0

    def known(self, pid: int, pidfd: int) -> None:
        """Note the program's process; takes the descriptor over."""
        super().known(pid, pidfd)
        os.close(pidfd)

    def lend_as(self, kind: Any) -> None:
        """It is lent to a holder of this program that may connect to it in another way."""
        if kind.command.connect != self.kind.command.connect:
            self.close_clients()
        self.kind = kind

    def renew(self) -> None:
        """Nothing is lent to a program."""

    def leave_start(self) -> tuple[int, bool, bytes] | None:
        """Stop waiting for a start: 1 if what reports it ready was not read, else 0 and that."""
        return int(not self.answered()), True, self.report

    def close_local(self) -> None:
        """Close this program's duplicates of the sockets, and its clients."""
        self._link.close()
        if self.stream is not None:
            self.stream.close()
        self.close()


SharedRecord = SharedPythonRecord | SharedProgramRecord


class Given(NamedTuple):
    """What comes along with a service that this program does not know; the descriptors are ours."""

    connected: int
    """Its socket."""
    process: int
    """Its pidfd; -1 if its process is not known yet."""
    own: int
    """Our end of a program's own socket; -1 if it has none."""
    port: int
    """The port that a program was given; 0: none."""
    report: bytes
    """What the program that started it reported."""


def taken_on(
    kind: SharedKind | SharedCommandKind,
    handle: _core.Handle,
    given: Given,
    *,
    pid: int,
    met: bool,
) -> SharedRecord:
    """The record of a service that another program started."""
    record: SharedRecord
    if isinstance(kind, CommandKind):
        stream = None if given.own < 0 else ProgramSocket(given.own)
        link = ProgramSocket(given.connected)
        record = SharedProgramRecord(kind, handle, link, stream, given.port or None)
        record.owes = False
        if given.report:
            record.learn(given.report)
    else:
        record = SharedPythonRecord.taken_on(kind, handle, given.connected, met=met)
        kind.learn_report(given.report)
    if given.process >= 0:
        record.known(pid, given.process)
    return record
