"""Serving many connections on an event loop."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any

from forebay._core import OUTBOX_BYTES_HIGH, Connection
from forebay.errors import BrokenError, ConfigError, Error
from forebay.rpc._codec import BY_NUMBER
from forebay.rpc._handshake import handshake
from forebay.rpc._running import Running, _current, answer_failure, find_method
from forebay.rpc._serve import STREAMED, refuse_call
from forebay.rpc._server_stream import SessionStreams
from forebay.rpc._stall import StallCheck
from forebay.rpc._watch import Watch
from forebay.transport import Tls
from forebay.transport._internal import (
    STRANGER_TIMEOUT_S,
    Acceptor,
    AccessPolicy,
    Address,
    access_policy,
    open_listening,
    parse,
    sweep_of,
)

__all__ = ["Server", "serve"]

_log = logging.getLogger(__name__)
_CALLS_MAX = 1024
_CONNECTIONS_MAX = 1024
_HANDSHAKE_TIMEOUT_S = 5.0
#: How long a leaving server waits for the pong of a caller without running calls, if it has grace.
_PONG_S = 1.0


def serve(
    handler: Any,
    url: str,
    *,
    tls: Tls | None = None,
    token: str | bytes | None = None,
    unprotected: bool = False,
    handshake_timeout: float = _HANDSHAKE_TIMEOUT_S,
    grace: float = 0.0,
    max_calls: int = _CALLS_MAX,
    max_connections: int = _CONNECTIONS_MAX,
    tracebacks: bool = False,
) -> Server:
    """Serve the public methods of `handler`.

    Args:
        handler: `async def` methods and streams run as tasks, plain ones inline in the loop.
        url: "unix:///path" (at most 107 bytes of path; the file is private to the user),
            "tcp://host:port" or "tls://host:port" (port 0: any that is free).
        tls: what to show and which callers to accept, by `transport.Tls.server`; for `tls://`
            alone.
        token: what a caller must show; needed where other machines can connect, unless `tls` asks
            for certificates. On the loopback interface, which every user of the machine reaches,
            without either only connections of this user are accepted.
        unprotected: let other machines, and other users of this one, call without a token; over
            `tcp://`, one that stalls within a frame for 30 s is disconnected.
        handshake_timeout: seconds that a caller has for its handshake.
        grace: seconds that running calls have to finish when the server is left.
        max_calls: calls that run at once; further ones wait, at last in their callers' sockets.
        max_connections: open connections; further ones wait to be accepted.
        tracebacks: send the traceback of what a method raised to every caller, rather than to
            processes of this user on this host alone; it names files and lines of this program.

    Returns:
        A server to be entered with `async with`; it listens inside.

    Raises:
        ConfigError: the URL, `tls` does not fit it, or nothing protects it. Entering raises
            ConfigError (the path is too long or in use) and OSError (the port is).

    Loop affinity: the loop that enters it.
    Cancellation: leaving cancels what still runs, notifies the callers, and closes descriptors.
    """
    address = parse(url)
    if address.scheme == "shm":
        raise ConfigError(f"{url}: calls go over unix://, tcp:// or tls://")
    access = access_policy(url, address, tls, token, unprotected=unprotected)
    options = _Options(
        tls, access, handshake_timeout, grace, max_calls, max_connections, tracebacks
    )
    return Server(handler, address, options)


@dataclass(frozen=True, slots=True)
class _Options:
    """As of `serve`."""

    tls: Tls | None
    access: AccessPolicy
    handshake_timeout: float
    grace: float
    max_calls: int
    max_connections: int
    tracebacks: bool


class Server:
    """A listening server; made by `serve`.

    Attributes:
        url: what callers connect to, with the port that was chosen.
    """

    def __init__(self, handler: Any, address: Address, options: _Options):
        self.url = str(address)
        self._handler = handler
        self._address = address
        self._options = options
        self._sessions: set[_Session] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._acceptor: Acceptor | None = None
        self._running = 0
        self._closing = False
        # Over TLS a connection does not show whether it is within a frame, see `StallCheck`.
        self._checks_stalls = options.tls is None and not options.access.known

    async def __aenter__(self) -> Server:
        self._loop = asyncio.get_running_loop()
        self.url, sockets = await open_listening(self._address, own=self._options.access.own)
        self._acceptor = Acceptor(self.url, sockets, self._take)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose(grace=None if error is None else 0.0)

    @property
    def connections(self) -> int:
        """How many are open, those in their handshake included."""
        return len(self._sessions) + len(self._handshakes)

    async def aclose(self, *, grace: float | None = None) -> None:
        """Stop listening, say goodbye to the callers, and close. Idempotent.

        No new call is started: callers of those that wait or arrive are notified that they did not
        run, so that they may go elsewhere.

        Args:
            grace: seconds that running calls have to finish and their answers to leave; what still
                runs then is cancelled. Default: that of `serve`.

        Cancellation: what runs is cancelled, and everything closed.
        """
        if self._acceptor is None or self._closing:
            return
        self._closing = True
        self._acceptor.stop()
        for session in tuple(self._sessions):
            session.goodbye()
        grace = self._options.grace if grace is None else grace
        try:
            if grace > 0:
                await self._finish(grace)
            ending = self._tasks | self._handshakes
            for task in ending:
                task.cancel()
            if ending:
                await asyncio.wait(ending)
        finally:
            for session in tuple(self._sessions):
                session.close()

    async def _finish(self, grace: float) -> None:
        """Wait until every call is answered, and every caller has received the goodbye."""
        pong_until = self._loop.time() + min(grace, _PONG_S)
        reminder = self._loop.call_at(pong_until, self._changed.set)
        try:
            async with asyncio.timeout(grace):
                # A caller in its handshake may have sent a call behind it.
                while self._sessions or self._handshakes:
                    pong = self._loop.time() < pong_until
                    done = all(session.is_done(pong=pong) for session in self._sessions)
                    if done and not (pong and self._handshakes):
                        return
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            _log.info("%s: calls still ran %g s after the goodbye", self.url, grace)
        finally:
            reminder.cancel()

    @property
    def tracebacks(self) -> bool:
        """Whether every caller gets them."""
        return self._options.tracebacks

    @property
    def leaving(self) -> bool:
        """Whether it takes no new calls."""
        return self._closing

    def room(self) -> int:
        """How many more calls may run."""
        return 0 if self._closing else self._options.max_calls - self._running

    def start(self, work: Any) -> asyncio.Task[None]:
        """Run a call as a task of the server."""
        self._running += 1
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    def drop(self, session: _Session) -> None:
        """Forget a session that has closed."""
        self._sessions.discard(session)
        self.update()

    def update(self) -> None:
        """Act on a change: there may be room, or everything may be done."""
        self._changed.set()
        if self._acceptor is not None:
            self._acceptor.hold(self.connections >= self._options.max_connections)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        full = self.room() <= 0
        self._running -= 1
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s: an answer was lost", self.url, exc_info=error)
        if full:
            for session in tuple(self._sessions):
                try:
                    session.take_calls()
                except Exception as lost:  # the others' calls wait for this turn
                    session.give_up(lost)

    def _take(self, descriptor: int) -> None:
        options, acceptor = self._options, self._acceptor
        assert acceptor is not None
        try:
            connection = Connection(
                descriptor,
                server=True,
                peer=f"a caller of {self.url}",
                tls=None if options.tls is None else options.tls.core,
                expected=options.access.token,
                trusted=options.access.trusted,
            )
        except Error as error:
            _log.warning("handshake on %s failed: %s", self.url, error)
            acceptor.end_handshake()
            return
        task = self._loop.create_task(self._admit(connection, acceptor))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)
        self.update()

    async def _admit(self, connection: Connection, acceptor: Acceptor) -> None:
        timeout, session = self._options.handshake_timeout, None
        try:
            async with asyncio.timeout(timeout):
                await handshake(connection)
            session = _Session(self, connection, self._handler, self._loop)
            self._sessions.add(session)
        except TimeoutError:
            _log.warning(
                "a caller of %s did not finish its handshake within %g s", self.url, timeout
            )
        except (Error, OSError) as error:
            _log.info("handshake on %s failed: %s", self.url, error)
        finally:
            if session is None:
                connection.close()
            acceptor.end_handshake()
            self._loop.call_soon(self.update)  # when this task is no longer counted
        if session is not None:
            if self._checks_stalls:
                session.sweep(STRANGER_TIMEOUT_S)
            if self._closing:
                session.goodbye()
            session.step()


class _Session:
    """One connection of a server."""

    def __init__(
        self, server: Server, connection: Connection, handler: Any, loop: asyncio.AbstractEventLoop
    ):
        self._server = server
        self._connection = connection
        self._handler = handler
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._cancelled: set[asyncio.Task[None]] = set()  # of `_tasks`
        self._loop = loop
        self._streams: SessionStreams | None = None
        self._stall_check: StallCheck | None = None
        connection.attach()
        self._watch = Watch(loop, connection.fileno(), self.step)

    def sweep(self, timeout_s: float) -> None:
        """End it when its caller stalls within a frame for so long."""
        self._stall_check = StallCheck(self._connection, self._stalled)
        sweep_of(self._loop).watch(self._stall_check, timeout_s)

    def _stalled(self, timeout_s: float) -> None:
        peer = self._connection.peer
        self.give_up(
            BrokenError(f"{peer} sent no data for {timeout_s:g} s in the middle of a frame")
        )

    def goodbye(self) -> None:
        """Take no new calls. A pong says that the caller sends none any more."""
        if not self._connection.closed:
            self._connection.goodbye()
            self._connection.ping()
            self._update()

    def is_done(self, *, pong: bool) -> bool:
        """Whether everything is answered; with `pong`, also whether the caller has the goodbye."""
        connection = self._connection
        if connection.closed:
            return True
        done = not self._tasks and not connection.outbox_bytes
        return done and (not pong or connection.over or connection.counters()["pongs"] > 0)

    def close(self) -> None:
        """Close the connection."""
        if self._connection.closed:
            return
        self._watch.close()
        self._connection.flush()
        self._connection.close()
        self._server.drop(self)

    def give_up(self, error: Exception) -> None:
        """End it, and what runs for it, for an error that cannot be sent to its caller."""
        if self._connection.closed:
            return
        _log.warning("%s is disconnected: %s", self._connection.peer, error)
        self.close()
        for task in tuple(self._tasks.values()):
            task.cancel()

    def take_calls(self) -> None:
        """Start what may run, then watch for what is still needed."""
        connection = self._connection
        while not connection.closed and connection.outbox_bytes <= OUTBOX_BYTES_HIGH:
            calls = connection.poll_calls(max(0, min(self._server.room(), 16)))
            if not calls:
                break
            for call in calls:
                if connection.closed:
                    return
                self._start(*call)
        self._update()

    def step(self) -> None:
        """Read and write what can be, and act on it."""
        connection = self._connection
        if connection.closed:
            return
        connection.flush()
        connection.receive(0)
        self._cancel_tasks()
        if self._streams is not None:
            self._streams.wake()
        self.take_calls()
        if connection.holds_received:
            self._loop.call_soon(self.step)

    def _cancel_tasks(self) -> None:
        """Cancel the tasks of calls whose caller cancelled them or left.

        Each once, for a second time would end what it awaits as it cleans up; and every answer that
        finds the caller dead names all calls that still run.
        """
        for call in self._connection.take_cancelled():
            task = self._tasks.get(call)
            if task is not None and task not in self._cancelled:
                self._cancelled.add(task)
                task.add_done_callback(self._cancelled.discard)
                task.cancel()

    def _update(self) -> None:
        """Watch for what the connection wants; close it once it is over and answered."""
        connection = self._connection
        if connection.closed:
            return
        if connection.over:
            self._cancel_tasks()  # a send may have found the end: no `step` follows it
        fault = connection.fault
        if fault is not None:
            _log.info("connection closed: %s", fault)
        read, write = connection.wants()
        if self._server.leaving:
            self._server.update()
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
            if segments:
                segments.clear()
            result = find_method(self._handler, name)(*args, **(kwargs or {}))
            del args, kwargs  # what was lent goes back before the answer, and serves the next call
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
                self._server, self._connection, self._tasks, self._update, self._fail
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
        work.close()  # cancelled before its first step, it would warn that it was never awaited
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
        self._fail(running, number, error)

    def _fail(self, running: Running, number: int, error: Exception) -> None:
        """Answer with what was raised; disconnect a caller to which that cannot be sent."""
        try:
            tracebacks = self._server.tracebacks
            answer_failure(self._connection, running.id, number, error, tracebacks=tracebacks)
        except Exception as unsendable:
            self.give_up(unsendable)
