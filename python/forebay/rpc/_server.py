"""Serving many connections on an event loop."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from types import TracebackType
from typing import Any

from forebay._core import Connection
from forebay.rpc._codec import BY_NUMBER, describe
from forebay.rpc._connect import socket_path
from forebay.rpc._serve import STREAMED, Running, _current, find_method, refuse_call
from forebay.rpc._server_stream import SessionStreams
from forebay.rpc._watch import Watch
from forebay.transport._accept import Acceptor, open_doors
from forebay.transport._address import Address

__all__ = ["Server", "serve"]

_log = logging.getLogger(__name__)
_CALLS_MAX = 1024
_CONNECTIONS_MAX = 1024
_OUTBOX_BYTES_HIGH = 512 << 10


def serve(
    handler: Any,
    address: str,
    *,
    calls_max: int = _CALLS_MAX,
    connections_max: int = _CONNECTIONS_MAX,
) -> Server:
    """Serve the public methods of `handler` at a Unix socket.

    Args:
        handler: `async def` methods run as tasks, plain ones inline in the loop.
        address: "unix:///path"; at most 107 bytes of path. The file is private to the user.
        calls_max: calls that run at once; further ones wait, at last in their callers' sockets.
        connections_max: open connections; further ones wait to be accepted.

    Returns:
        A server to be entered with `async with`; it listens inside.

    Raises:
        ConfigError: the address is no Unix address, too long, or in use.

    Loop affinity: the loop that enters it.
    Cancellation: leaving cancels what runs, tells the callers, and closes every descriptor.
    """
    return Server(handler, socket_path(address), calls_max, connections_max)


class Server:
    """A listening server; made by `serve`."""

    def __init__(self, handler: Any, path: str, calls_max: int, connections_max: int):
        self._handler = handler
        self._path = path
        self._calls_max = calls_max
        self._connections_max = connections_max
        self._sessions: set[_Session] = set()
        self._running = 0
        self._closing = False

    async def __aenter__(self) -> Server:
        self._loop = asyncio.get_running_loop()
        url, doors = await open_doors(Address("unix", path=self._path))
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()
        self._acceptor = Acceptor(url, doors, self._take)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing = True
        self._acceptor.stop()
        for session in tuple(self._sessions):
            session.goodbye()
        try:
            await self._tasks.__aexit__(None, None, None)
        finally:
            for session in tuple(self._sessions):
                session.close()

    def room(self) -> int:
        """How many more calls may run."""
        return 0 if self._closing else self._calls_max - self._running

    def start(self, work: Any) -> asyncio.Task[None]:
        """Run a call as a task of the server."""
        self._running += 1
        task = self._tasks.create_task(work)
        task.add_done_callback(self._on_done)
        return task

    def drop(self, session: _Session) -> None:
        """Forget a session that has closed."""
        self._sessions.discard(session)
        self._acceptor.hold(False)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        full = self.room() <= 0
        self._running -= 1
        if full:
            for session in tuple(self._sessions):
                session.take_calls()

    def _take(self, descriptor: int) -> None:
        connection = Connection(descriptor, server=True, peer="a caller")
        try:
            self._sessions.add(_Session(self, connection, self._handler, self._loop))
        except OSError:  # no descriptor is left to watch it with
            connection.close()
            raise
        self._acceptor.hold(len(self._sessions) >= self._connections_max)
        self._acceptor.settle()


class _Session:
    """One connection of a server."""

    def __init__(
        self, server: Server, connection: Connection, handler: Any, loop: asyncio.AbstractEventLoop
    ):
        self._server = server
        self._connection = connection
        self._handler = handler
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._streams: SessionStreams | None = None
        connection.attach()
        self._watch = Watch(loop, connection.fileno(), self._on_ready)

    def goodbye(self) -> None:
        """Take no new calls, cancel what runs."""
        if not self._connection.closed:
            self._connection.goodbye()
        for task in tuple(self._tasks.values()):
            task.cancel()

    def close(self) -> None:
        """Let go of the descriptor."""
        if self._connection.closed:
            return
        self._watch.close()
        self._connection.flush()
        self._connection.close()
        self._server.drop(self)

    def take_calls(self) -> None:
        """Start what may run, then watch for what is still needed."""
        connection = self._connection
        while not connection.closed and connection.outbox_bytes <= _OUTBOX_BYTES_HIGH:
            calls = connection.poll_calls(max(0, min(self._server.room(), 16)))
            if not calls:
                break
            for call in calls:
                self._start(*call)
        self._update()

    def _on_ready(self) -> None:
        connection = self._connection
        connection.flush()
        connection.receive(0)
        for call in connection.take_cancelled():
            task = self._tasks.get(call)
            if task is not None:
                task.cancel()
        if self._streams is not None:
            self._streams.wake()
        self.take_calls()

    def _update(self) -> None:
        """Watch for what the connection wants; close it once it is over and answered."""
        connection = self._connection
        if connection.closed:
            return
        fault = connection.fault
        if fault is not None:
            _log.info("connection closed: %s", fault)
        read, write = connection.wants()
        if fault is not None or (connection.over and not self._tasks and not write):
            self.close()
            return
        self._watch.want(read=read, write=write)

    def _start(
        self,
        call: int,
        number: int,
        head: Any,
        segments: Any,
        remaining: float | None,
        oneway: bool,
        stream: bool,
    ) -> None:
        running = Running(self._connection)
        running.begin(call, remaining, oneway)
        token = _current.set(running)
        try:
            name, args, kwargs = BY_NUMBER[number].decode(head, segments)
            result = find_method(self._handler, name)(*args, **(kwargs or {}))
            if type(result) in STREAMED and not stream:
                refuse_call(name)
        except Exception as error:
            self._answer(running, number, None, error)
        else:
            if stream:
                self._stream(running, number, name, result)
            elif asyncio.iscoroutine(result):
                work = self._run(running, number, result)
                task = self._server.start(work)
                self._tasks[call] = task
                task.add_done_callback(partial(self._finish, call, result))
            else:
                self._answer(running, number, result, None)
        finally:
            _current.reset(token)

    def _stream(self, running: Running, number: int, name: str, result: Any) -> None:
        if self._streams is None:
            self._streams = SessionStreams(
                self._server, self._connection, self._tasks, self._update
            )
        self._streams.start(running, number, name, result)

    async def _run(self, running: Running, number: int, work: Any) -> None:
        try:
            result = await work
        except Exception as error:
            self._answer(running, number, None, error)
        else:
            self._answer(running, number, result, None)

    def _finish(self, call: int, work: Any, task: asyncio.Task[None]) -> None:
        self._tasks.pop(call, None)
        work.close()  # cancelled before its first step, it would warn that nobody awaited it
        if task.cancelled() and not self._connection.closed:
            self._connection.fail_cancelled(call)
        self._update()

    def _answer(self, running: Running, number: int, result: Any, error: Exception | None) -> None:
        connection, codec = self._connection, BY_NUMBER[number]
        if running.oneway:
            if error is not None:
                _log.warning("a one-way call raised", exc_info=error)
            return
        if connection.closed:
            return
        if error is None:
            try:
                connection.reply(running.id, number, *codec.encode(result))
                return
            except Exception as unsendable:
                error = unsendable
        head, _ = codec.encode(describe(error))
        connection.fail(running.id, number, head)
