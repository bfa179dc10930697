"""A listener whose connections are served by a thread of its own, without the GIL."""

from __future__ import annotations

import asyncio
import socket
from types import TracebackType
from typing import Any

from forebay import _forks
from forebay._core import MessageConnection, NativeServer
from forebay._steps import Steps, awaited, block
from forebay.errors import ConfigError, Error
from forebay.transport._access import AccessPolicy
from forebay.transport._address import Address
from forebay.transport._connection import AsyncConnection
from forebay.transport._handler import Handler as PythonHandler
from forebay.transport._handler import log_failed_start, run_handler
from forebay.transport._limits import ConnectionLimits
from forebay.transport._opening import Opening
from forebay.transport._socket import Found, bind_all, name_of, resolve
from forebay.transport._stall import sweep_of
from forebay.transport.native import Handler, Table

__all__ = ["NativeListen", "NativeListener"]

NEVER_S = 1e9
"""For ever, in seconds that fit a clock."""


class NativeListen(Opening["NativeListener"]):
    """A native listener to be: nothing happens before it is entered or awaited.

    `with` serves threads; `async with` and `await` are for those that have a Python handler too.
    """

    __slots__ = ()

    def __enter__(self) -> NativeListener:
        return self._listener._open_blocking()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()


class NativeListener:
    """What listens, and the thread that serves what it accepts.

    Attributes:
        url: what peers connect to, with the port that was chosen.

    Affinity: with a Python handler the loop in which it was opened, otherwise none.
    """

    def __init__(
        self,
        address: Address,
        native: Handler,
        handler: PythonHandler | None,
        access: AccessPolicy,
        limits: ConnectionLimits,
        handshake_timeout: float,
    ) -> None:
        if address.scheme not in ("tcp", "unix"):
            raise ConfigError(f"{address}: native handlers speak tcp:// and unix://")
        if handler is not None and not isinstance(native, Table):
            raise ConfigError(
                f"{address}: {type(native).__name__} answers everything, so the handler would get"
                " nothing; give native.Table({name: ...}) beside a handler"
            )
        self.url = str(address)
        self._address = address
        self._native = native
        self._handler = handler
        self._access = access
        self._limits = limits
        self._handshake_timeout = handshake_timeout
        self._core: NativeServer | None = None
        self._counted: dict[str, Any] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: asyncio.Event | None = None

    @property
    def connections(self) -> int:
        """How many are open, those of the Python handler included."""
        served = 0 if self._core is None else self._core.metrics()["connections"]
        return served + len(self._tasks)

    def metrics(self) -> dict[str, Any]:
        """What was counted: connections and messages, and why connections ended."""
        return self._counted if self._core is None else self._core.metrics()

    def close(self) -> None:
        """Stop listening, answer what was received, close. Idempotent.

        Waits for at most about 0.5 s, for clients that take their answers slowly.
        """
        if self._handler is not None:
            raise ConfigError(f"{self.url} has a handler on a loop: await aclose()")
        if self._core is not None:
            self._end(self._core)

    async def aclose(self) -> None:
        """The same on the loop; the Python handlers are cancelled. Idempotent."""
        core, ended = self._core, self._ended
        if core is None or self._loop is None or ended is None:
            return
        core.stop()
        try:
            await ended.wait()
        finally:
            if not ended.is_set():  # cancelled: do not leave the thread behind
                self._loop.remove_reader(core.fileno())
            self._end(core)
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _end(self, core: NativeServer) -> None:
        core.close()
        self._counted = core.metrics()
        self._core = None

    async def _open(self) -> NativeListener:
        self._loop = asyncio.get_running_loop()
        await awaited(self._steps(), None)
        assert self._core is not None
        self._ended = asyncio.Event()
        self._loop.add_reader(self._core.fileno(), self._take)
        return self

    def _open_blocking(self) -> NativeListener:
        if self._handler is not None:
            raise ConfigError(f"{self.url}: a Python handler runs on an event loop: async with")
        block(self._steps(), None)
        return self

    def _steps(self) -> Steps[None]:
        """Look the hosts up, listen and start."""
        targets = {}
        for target in self._native.targets():
            targets[target] = _first((yield from resolve(target.host, target.port)))
        sockets = []
        if self._address.scheme == "tcp":
            found = yield from resolve(self._address.host, self._address.port, passive=True)
            sockets = bind_all(found, self._address.port)
        self._start(targets, sockets)

    def _start(self, targets: dict[Address, tuple[str, int]], sockets: list[socket.socket]) -> None:
        if isinstance(self._native, Table):
            service = self._native.service(targets, hands_over=self._handler is not None)
        else:
            service = self._native.service(targets)
        if sockets:
            self.url = name_of(self._address.scheme, sockets[0].getsockname())
        _forks.stop_listening()
        self._core = NativeServer(
            service,
            descriptors=[listening.detach() for listening in sockets],
            path=self._address.path or None,
            expected=self._access.token,
            trusted=self._access.trusted,
            own=self._access.own,
            limits=self._limits.of_connection(),
            handshake=self._handshake_timeout,
            stall=min(self._limits.stall_timeout_of(known=False), NEVER_S),
        )

    def _take(self) -> None:
        """Connections that are the Python handler's, or the end of the thread."""
        core, loop, ended = self._core, self._loop, self._ended
        if core is None or loop is None or ended is None:
            return
        taken = core.take(f"a peer of {self.url}")
        if taken is None:
            loop.remove_reader(core.fileno())
            ended.set()
            return
        for connection in taken:
            task = loop.create_task(self._attend(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _attend(self, core: MessageConnection) -> None:
        assert self._handler is not None
        loop = asyncio.get_running_loop()
        sweep = sweep_of(loop)
        try:
            core.bind(loop)
            connection = AsyncConnection(core, self._address.scheme)
            sweep.watch(core, self._limits.stall_timeout_of(known=self._access.known))
            await run_handler(self._handler, connection, self.url)
        except (Error, OSError) as error:
            log_failed_start(error, self.url)
        finally:
            sweep.forget(core)
            core.close()


def _first(found: list[Found]) -> tuple[str, int]:
    _, (host, port, *_) = found[0]
    return str(host), int(str(port))
