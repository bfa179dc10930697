"""Acquiring a program: the object that its holder gets, and its client."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from forebay._steps import awaited, block
from forebay.errors import BrokenError, ConfigError, DeadlineError, StaleError
from forebay.pool.lend.acquire import Acquire
from forebay.pool.lend.step import Steps
from forebay.pool.lend.unsettled import TRIES
from forebay.pool.lend.wait import Deadline
from forebay.pool.programs.program import ProgramRecord

if TYPE_CHECKING:
    import asyncio
    import socket

    from forebay.pool.lend.lease import Lease
    from forebay.pool.lend.pool import ServicePool
    from forebay.pool.programs.started import Started


class Backend:
    """A leased program: `client`, `socket`, `started` and `lease`."""

    __slots__ = ("_client", "_record", "_timeout", "lease")

    def __init__(self, lease: Lease, timeout: float | None = None) -> None:
        self.lease = lease
        self._timeout = timeout
        self._record: ProgramRecord = lease.program()
        self._client: Any = None

    @property
    def client(self) -> Any:
        """What the command's connect function made for this program; valid until the lease ends.

        Raises:
            StaleError: the lease has ended.
            ConfigError: the command has no connect function.
        """
        kept = self._record.client(_running_loop() if self.lease.asyncio else None)
        self.lease.check()
        if kept is None:
            raise ConfigError(
                f"{self._record.kind.name} has no client: give its Command a connect function"
            )
        if self._client is None:
            self._client = kept.lend(self.lease, self._timeout)
        return self._client

    @property
    def started(self) -> Started:
        """Facts of the program: its private directory, its port or Unix socket, its ready line.

        Raises:
            StaleError: the lease has ended.
            ConfigError: only its socket was asked for.
        """
        self.lease.check()
        return self._record.facts()

    @property
    def socket(self) -> socket.socket:
        """The connected socket to it; valid until the lease ends."""
        return self.lease.socket

    def __repr__(self) -> str:
        return f"<{self._record.kind.name}: {self.lease!r}>"


class Meet:
    """Wait for the client of a program to be made."""

    __slots__ = ("_record", "_timeout")

    def __init__(self, record: ProgramRecord, timeout: float | None) -> None:
        self._record = record
        self._timeout = timeout

    def block(self, pool: ServicePool) -> None:
        """Make it in this thread."""
        self._record.connect(self._timeout)

    async def wait(self, pool: ServicePool) -> None:
        """Make it on the running loop."""
        await self._record.connect_async(self._timeout)


class ProgramAcquire(Acquire[Any]):
    """A context manager that acquires a program, which is lent once its client is made.

    If its client cannot be made, the program is ended. That raises the error of the connect
    function, or the program's death if that was the reason.
    If an exception leaves the block, the program is ended, because it may still send an answer that
    nobody will read; a client with `reusable` decides that itself.
    """

    __slots__ = ()

    def __enter__(self) -> Backend:
        deadline = Deadline(self._timeout)
        for _ in range(TRIES):
            backend: Backend = super().__enter__()
            record = backend.lease.program()
            if record.connected(None) and record.fit():
                return backend
            try:
                fit = block(self._meet(backend.lease, deadline), self._pool)
            except BaseException:
                self._give_up(backend.lease)
                raise
            if fit:
                return backend
            self._give_up(backend.lease)
        raise self._unfit()

    def __exit__(self, *how: object) -> None:
        self._judge(how)
        super().__exit__(*how)

    async def __aenter__(self) -> Backend:
        deadline = Deadline(self._timeout)
        for _ in range(TRIES):
            backend: Backend = await super().__aenter__()
            record = backend.lease.program()
            if record.connected(_running_loop()) and record.fit():
                return backend
            try:
                fit = await awaited(self._meet(backend.lease, deadline), self._pool)
            except BaseException:
                self._give_up(backend.lease)
                raise
            if fit:
                return backend
            self._give_up(backend.lease)
        raise self._unfit()

    async def __aexit__(self, *how: object) -> None:
        self._judge(how)
        await super().__aexit__(*how)

    def _meet(self, lease: Lease, deadline: Deadline) -> Steps[bool]:
        """Have the client made if there is none. False: the program does not fit, see `fit`."""
        record = lease.program()
        if not record.fit():
            return False
        try:
            yield Meet(record, deadline.left())
        except DeadlineError:
            raise
        except TimeoutError as error:
            raise DeadlineError(
                f"the connect function of {record.kind.name} took longer than the "
                f"{self._timeout} s of this acquire",
                timeout=self._timeout,
            ) from error
        except (BrokenError, OSError) as error:
            told = yield from self._pool.explain(record.handle, record.kind.name, error)
            if told is error:
                raise
            raise told from error
        return True

    def _judge(self, how: tuple[object, ...]) -> None:
        lease = self._lease
        left_by_exception = bool(how) and how[0] is not None
        if left_by_exception and lease is not None and not lease.program().judges_itself():
            with contextlib.suppress(StaleError):  # its holder has ended it
                lease.discard()

    def _give_up(self, lease: Lease) -> None:
        lease.discard()
        lease.close()
        self._lease = None

    def _unfit(self) -> BrokenError:
        return BrokenError(
            f"{self._kind.name}: {TRIES} programs in a row had something left in their sockets; "
            "let them say nothing unasked, or use reuse=False"
        )


def _running_loop() -> asyncio.AbstractEventLoop:
    import asyncio

    return asyncio.get_running_loop()
