"""The program of a gateway: from its arguments to its end.

| signal | what it does |
|---|---|
| SIGTERM | answers under way end, streams are cut, then it ends |
| SIGHUP | reads the tokens and the certificate again |

It ends as well when its lifeline does, which is a pipe that its server holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import sys
from pathlib import Path
from typing import Final

import msgspec
import uvloop
from uvicorn.config import Config

from forebay._log_format import log_to_stderr
from forebay.errors import Error
from forebay.executor._internal import TOKENS
from forebay.gateway.access import Access, Address
from forebay.gateway.asgi.application import Application
from forebay.gateway.asgi.context import Context
from forebay.gateway.asgi.server_link import ServerLink
from forebay.gateway.http.census import Census
from forebay.gateway.http.protocol import Protocol
from forebay.gateway.http.state import State
from forebay.gateway.login import Sessions
from forebay.gateway.process.certificate import Certificate
from forebay.gateway.process.listening import BACKLOG
from forebay.gateway.process.settings import Settings
from forebay.gateway.process.tls_listener import TlsListener
from forebay.gateway.routes.every import TABLE
from forebay.gateway.routes.rates import Rates
from forebay.gateway.tokens import Tokens

END_S: Final = 3.0
"""For answers that are under way, after SIGTERM."""

END_ALONE_S: Final = 0.2
"""The same after the end of the server, which has none to give any more."""

OWN_DESCRIPTORS: Final = 100
"""Of the limit on descriptors, for what is no connection."""

TICK_S: Final = 1.0

_log = logging.getLogger(__name__)


def main() -> None:
    """Serve until a signal or the end of the lifeline; the arguments are the supervisor's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    listener, lifeline = map(int, sys.argv[1].split(","))
    settings = msgspec.json.decode(sys.argv[2], type=Settings)
    log_to_stderr(settings.log_level, settings.log_format)
    if not os.read(lifeline, 1):
        return  # the server has ended meanwhile
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, socket.socket(fileno=listener), lifeline))


async def _serve(settings: Settings, listener: socket.socket, lifeline: int) -> None:
    loop = asyncio.get_running_loop()
    gateway = _Gateway(settings)
    ending: asyncio.Future[float] = loop.create_future()

    def end(seconds: float) -> None:
        if not ending.done():
            ending.set_result(seconds)
        loop.remove_reader(lifeline)

    loop.add_signal_handler(signal.SIGTERM, end, END_S)
    loop.add_signal_handler(signal.SIGHUP, gateway.reload)
    loop.add_reader(lifeline, end, END_ALONE_S)
    try:
        if await _connected(gateway, ending):
            await _listen(gateway, listener, ending)
    finally:
        gateway.context.server.close()


async def _connected(gateway: _Gateway, ending: asyncio.Future[float]) -> bool:
    """Wait for the server's first answer, or for the end of the gateway; False: it is to end."""
    asking = asyncio.ensure_future(gateway.context.info.get())
    await asyncio.wait((asking, ending), return_when=asyncio.FIRST_COMPLETED)
    if ending.done():
        asking.cancel()
        return False
    with contextlib.suppress(Error):  # a request that comes says what is wrong
        await asking
    return True


async def _listen(
    gateway: _Gateway, listener: socket.socket, ending: asyncio.Future[float]
) -> None:
    """Serve connections until the gateway is to end, and end them."""
    accepting = await gateway.listen(listener)
    _log.info("serving at %s", gateway.context.url)
    beside = [asyncio.ensure_future(work) for work in (gateway.tick(), gateway.sample())]
    try:
        seconds = await ending
    finally:
        for task in beside:
            task.cancel()
        accepting.close()
    await gateway.end(seconds)


class _Gateway:
    """The parts of the gateway, put together."""

    def __init__(self, settings: Settings) -> None:
        state_dir = Path(settings.state_dir)
        address = Address(
            settings.host, settings.port, settings.tls_cert is not None, settings.names
        )
        self._state = State(
            Census(
                _connections_max(settings.max_connections),
                settings.max_connections_per_address,
                settings.max_body_bytes,
            )
        )
        self._certificate = (
            None
            if settings.tls_cert is None
            else Certificate(settings.tls_cert, settings.tls_key or settings.tls_cert)
        )
        self._tokens = Tokens(state_dir / TOKENS)
        access = Access(address, self._tokens, Sessions(state_dir, self._tokens))
        server = ServerLink(settings.server)
        self.context = Context(
            address.url, server, access, self._tokens, self._state, Rates(settings.rates)
        )

    async def listen(self, listener: socket.socket) -> asyncio.AbstractServer | TlsListener:
        """Accept connections."""
        config = Config(
            Application(self.context, TABLE),
            http=Protocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="warning",  # without one uvicorn words a line for each connection
            access_log=False,
            proxy_headers=False,
        )
        config.load()
        if self._certificate is None:
            return await asyncio.get_running_loop().create_server(
                lambda: Protocol(config, self._state), sock=listener, backlog=BACKLOG
            )
        listener.setblocking(False)
        listener.listen(BACKLOG)
        return TlsListener(
            listener,
            self._certificate.context,
            self._state.census,
            lambda host: Protocol(config, self._state, counted_as=host),
        )

    async def tick(self) -> None:
        """Look once a second for what has run out of time or has changed."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(TICK_S)
            self._state.tick()
            self._state.look(loop.time())
            self.context.streams.tick(TICK_S)
            if self._certificate is not None:
                self._certificate.look()

    async def sample(self) -> None:
        """Keep the history of the server's figures."""
        await self.context.overview.keep()

    def reload(self) -> None:
        """Read the files again."""
        self._tokens.reload()
        if self._certificate is not None:
            self._certificate.reload()

    async def end(self, seconds: float) -> None:
        """Close every connection, once its answer is written or so many seconds have passed."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        self.context.streams.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        while self._state.tasks and loop.time() < until:
            await asyncio.wait(list(self._state.tasks), timeout=until - loop.time())
        for task in list(self._state.tasks):
            task.cancel()
        if self._state.tasks:
            await asyncio.wait(list(self._state.tasks), timeout=END_ALONE_S)
        for connection in list(self._state.connections):
            connection.transport.abort()


def _connections_max(wanted: int) -> int:
    """How many connections there may be: as many as there are descriptors for, at most."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + OWN_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    allowed = max(1, soft - OWN_DESCRIPTORS)
    _log.warning(
        "at most %d connections: max_connections is %d, and the limit on descriptors %d; raise it"
        " with: ulimit -n %d",
        allowed,
        wanted,
        soft,
        needed,
    )
    return allowed
