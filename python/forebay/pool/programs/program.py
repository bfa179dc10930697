"""A program, as its pool keeps it between leases."""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from forebay._steps import awaited, block
from forebay.errors import ConfigError, DeadlineError
from forebay.pool.lend.wait import Deadline
from forebay.pool.programs import listener, probe
from forebay.pool.programs.connect import Connected, close_client
from forebay.pool.programs.probe import Pauses, Starting
from forebay.pool.programs.readiness import Accepting, Http, Line, PortFile
from forebay.pool.programs.started import REPORT_BYTES_MAX, Started, read_report

if TYPE_CHECKING:
    import asyncio

    from forebay import _core
    from forebay.pool.lend.kind import CommandKind

SOCKET_PATH_BYTES_MAX = 107
"""Of a Unix socket's address; see unix(7)."""


class ProgramRecord:
    """A program: its sockets, whether it still has to become ready, and the clients made for it.

    The *link* is the socket that the keeper watches. If the program reports itself ready on the
    link, its holder uses that socket. Otherwise the keeper writes the facts of the program to the
    link, and the program may have another socket for its holder, the *stream*.
    """

    __slots__ = (
        "_clients",
        "_facts",
        "_link",
        "_port",
        "handle",
        "kind",
        "owes",
        "pid",
        "report",
        "starting",
        "stream",
    )

    found = None
    """The canary does not look into a program."""

    def __init__(
        self,
        kind: CommandKind,
        handle: _core.Handle,
        link: socket.socket,
        stream: socket.socket | None,
        port: int | None,
    ) -> None:
        self.kind = kind
        self.handle = handle
        self.stream = stream
        self.pid = 0
        self.starting = True
        self.owes = True
        self.report = b""
        """What the keeper reported of it when it was ready."""
        self._link = link
        self._port = port
        self._facts: Started | None = None
        self._clients: dict[asyncio.AbstractEventLoop | None, Connected] = {}

    @property
    def socket(self) -> socket.socket | None:
        """The socket of its holder; None if the program inherited none."""
        return self._link if self.kind.speaks_on_link else self.stream

    def finish(self, timeout: float | None) -> None:
        """Wait until it is ready."""
        if not self.owes:
            return
        try:
            block(self._become_ready(), Starting(self._link, Deadline(timeout)))
        except TimeoutError:
            raise self._too_late(timeout) from None

    async def finish_async(self, timeout: float | None) -> None:
        """The same on the running loop. Cancellation: safe."""
        if not self.owes:
            return
        try:
            await awaited(self._become_ready(), Starting(self._link, Deadline(timeout)))
        except TimeoutError:
            raise self._too_late(timeout) from None

    def _become_ready(self) -> Pauses[None]:
        """Wait until it is ready. The report stays on the link until then, for another caller."""
        if self.kind.speaks_on_link:
            yield from probe.receive(self._link, 1)
        else:
            told = yield from probe.receive(self._link, REPORT_BYTES_MAX, socket.MSG_PEEK)
            facts = self._facts_of(told)
            yield from self._look(facts)
            self._protect(facts)
            self._facts = self._without_notifier(facts)
            self._link.recv(len(told))
            self.report = told
        self.owes = False
        for connected in (self._link, self.stream):
            if connected is not None:
                connected.setblocking(True)

    def learn(self, report: bytes) -> None:
        """Note what the keeper reported when it was ready, to the program that waited for that."""
        self._facts = self._without_notifier(self._facts_of(report))
        self.report = report

    def _facts_of(self, told: bytes) -> Started:
        pid, directory, text = read_report(told)
        ready, match, port = self.kind.command.ready, None, self._port
        if isinstance(ready, Line):
            match = re.search(ready.pattern, text)
            if match is not None and "port" in match.groupdict():
                port = _number(match["port"])
        elif isinstance(ready, PortFile):
            port = _number(text)
        path = os.path.join(directory, "socket") if self.kind.command.takes("{socket}") else None
        if path is not None and len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
            raise ConfigError(
                f"the Unix socket {path!r} has {len(os.fsencode(path))} bytes, and a path may have "
                f"{SOCKET_PATH_BYTES_MAX}; set TMPDIR to a shorter one before the pool is used"
            )
        return Started(pid, directory, path, port, text, match, self.stream)

    def _look(self, facts: Started) -> Pauses[None]:
        """Try what nothing announces: a socket that accepts, or an HTTP status."""
        ready, faces = self.kind.command.ready, self.kind.faces
        address = facts.socket_path or (listener.LOOPBACK, facts.port or 0)
        if ready == "fd" and self.stream is not None:
            yield from probe.receive(self.stream, 1)
        if isinstance(ready, Http):
            yield from probe.until(lambda: self._probe(facts, probe.answers(address, ready.path)))
        elif isinstance(ready, Accepting):
            yield from probe.until(lambda: self._probe(facts, probe.accepts(address)))
        elif faces is not None and faces.wants_listener and facts.address:
            yield from probe.until(lambda: probe.accepts(address))

    @staticmethod
    def _probe(facts: Started, probe: Pauses[bool]) -> Pauses[bool]:
        """Whether a probe succeeds, and was answered by this program."""
        found = yield from probe
        return found and (facts.port is None or listener.belongs_to(facts.pid, facts.port))

    def _protect(self, facts: Started) -> None:
        """Refuse a program that other machines can reach, and close its Unix socket to other users.

        A port of the loopback interface stays open to every user of this machine: the program
        accepts there, by a protocol that is not ours.

        Raises:
            ConfigError: it listens where other machines can reach it.
        """
        if facts.socket_path is not None:
            with contextlib.suppress(FileNotFoundError):  # it may bind it later
                os.chmod(facts.socket_path, 0o600)
        if facts.port is not None:
            listener.refuse_exposed(self.kind.name, facts.port)

    def _without_notifier(self, facts: Started) -> Started:
        """Let a program that serves elsewhere close its descriptor after it reported ready."""
        if self.kind.command.only_notifies and self.stream is not None:
            self.stream.close()
            self.stream = None
            return replace(facts, stream=None)
        return facts

    def _too_late(self, timeout: float | None) -> DeadlineError:
        return DeadlineError(f"{self.kind.name} was not ready within {timeout} s", timeout=timeout)

    def answered(self) -> bool:
        """Look whether it is ready, without waiting. Raises as `finish`."""
        try:
            self.finish(0.0)
        except DeadlineError:
            return False
        return True

    def begin_ping(self) -> bool:
        """False: the pool does not know the protocol of a program, so it cannot ping it."""
        return False

    def facts(self) -> Started:
        """The facts of the program.

        Raises:
            ConfigError: there are none, because only its socket was asked for.
        """
        if self._facts is None:
            raise ConfigError(f"of {self.kind.name} nothing but its socket is known")
        return self._facts

    def client(self, loop: asyncio.AbstractEventLoop | None) -> Connected | None:
        """The client that was made for a thread or for an event loop; None if there is none."""
        faces = self.kind.faces
        return None if faces is None else self._clients.get(faces.key(loop))

    def connected(self, loop: asyncio.AbstractEventLoop | None) -> bool:
        """Whether the client for a thread or for an event loop exists or is not wanted."""
        faces = self.kind.faces
        return faces is None or faces.key(loop) in self._clients

    def connect(self, timeout: float | None) -> None:
        """Make the client for threads. Raises what the connect function raises."""
        faces = self.kind.faces
        if faces is not None and self.client(None) is None:
            self._clients[None] = faces.connect(replace(self.facts(), timeout=timeout))

    async def connect_async(self, timeout: float | None) -> None:
        """Make the client for the running loop. Cancellation: no client is kept."""
        import asyncio

        loop = asyncio.get_running_loop()
        faces = self.kind.faces
        if faces is None or self.client(loop) is not None:
            return
        self._clients = {
            key: kept
            for key, kept in self._clients.items()
            if key is None or not key.is_closed()  # a closed loop's clients ended with it
        }
        async with asyncio.timeout(timeout):
            made = await faces.connect_async(replace(self.facts(), timeout=timeout))
        self._clients[faces.key(loop)] = made

    def known(self, pid: int, pidfd: int) -> None:
        """Note the program's process."""
        self.pid = pid
        self.starting = False

    def fit(self) -> bool:
        """Whether it may be lent: no call of an earlier holder is known to be under way."""
        if self.stream is not None and not self._clients:
            poll = select.poll()
            poll.register(self.stream, select.POLLIN | select.POLLRDHUP)
            if self.stream.fileno() < 0 or poll.poll(0):
                return False
        return all(kept.fit() for kept in self._clients.values())

    def judges_itself(self) -> bool:
        """Whether its clients know if a call is under way, so that an exception does not end it."""
        clients = self._clients.values()
        return bool(clients) and all(kept.reusable is not None for kept in clients)

    def idle(self) -> bool:
        """Whether it can be lent again; a holder may have closed its socket.

        The pool does not know the program's protocol; the poll at the next acquire finds bytes that
        were left unread.
        """
        connected = self.socket
        if connected is not None:
            if connected.fileno() < 0:
                return False
            connected.setblocking(True)  # the holder may have changed how it waits
        return self.fit()

    def close_clients(self) -> None:
        """Close the clients; the next ones are made anew."""
        clients, self._clients = self._clients, {}
        for loop, kept in clients.items():
            close_client(kept, loop)

    def close(self) -> None:
        """Close sockets and clients; idempotent. A thread that waits for it gets an error."""
        self.close_clients()
        for connected in (self._link, self.stream):
            if connected is not None:
                with contextlib.suppress(OSError):  # closed already, by the holder or its other end
                    connected.shutdown(socket.SHUT_RDWR)
                connected.close()


def _number(text: Any) -> int | None:
    found = re.search(r"\d+", text or "")
    return int(found[0]) if found and int(found[0]) < 65_536 else None
