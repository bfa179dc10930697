"""The handshake of a connection, on an event loop."""

from __future__ import annotations

import asyncio

from forebay._core import Connection
from forebay.errors import BrokenError
from forebay.rpc._watch import Watch

__all__ = ["handshake"]


async def handshake(connection: Connection) -> None:
    """Step a connection until its handshake is done, TLS and token included.

    Raises:
        BrokenError, ProtocolError: what ended the connection before that.

    Cancellation: safe; the connection is the caller's to close.
    """
    loop = asyncio.get_running_loop()
    connection.attach()
    steps = _Handshake(connection, loop)
    try:
        steps.step()
        await steps.done
    finally:
        steps.watch.close()
        if not connection.closed:
            connection.detach()


class _Handshake:
    """Steps one connection."""

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop):
        self._connection = connection
        self._loop = loop
        self.done: asyncio.Future[None] = loop.create_future()
        self.watch = Watch(loop, connection.fileno(), self.step)

    def step(self) -> None:
        connection = self._connection
        if self.done.done() or connection.closed:
            return
        connection.flush()
        connection.receive(0)
        if connection.is_open():
            self.done.set_result(None)
        elif (fault := connection.fault) is not None:
            if isinstance(fault, BrokenError):
                fault.delivered = "no"
            self.done.set_exception(fault)
        elif connection.over:
            message = (
                f"{connection.peer} closed the connection before the handshake was done; does"
                " the other end speak forebay, and are token= and tls= right?"
            )
            self.done.set_exception(BrokenError(message, delivered="no"))
        elif connection.holds_received:
            self._loop.call_soon(self.step)
        else:
            read, write = connection.wants()
            self.watch.want(read=read, write=write)
