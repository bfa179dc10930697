"""A worker on a node: what a task of the cluster runs, in a thread of the cluster's worker."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import select
import shutil
import signal
import socket
import ssl
import struct
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from forebay.errors import (
    BrokenError,
    ClosedError,
    ConfigError,
    DeadlineError,
    Error,
    ProtocolError,
)
from forebay.executor.engine.files import FileSender
from forebay.executor.engine.link import (
    CALL,
    CLIENT,
    CREDIT,
    CREDIT_BYTES,
    DIED,
    FAILED,
    OUTPUT,
    PENDING_MAX,
    PING_MS,
    READY,
    REPLY,
    SERVE,
    SIDE,
    SIGNAL,
    Link,
    pack_message,
    prove_worker,
    unpack_message,
)
from forebay.executor.engine.node import Node
from forebay.executor.engine.order import Order, host_identity
from forebay.executor.engine.tunnel import Tunnel
from forebay.executor.engine.watched import Watched, events_of
from forebay.executor.wire.codec import decoder
from forebay.executor.wire.ids import number_of
from forebay.executor.worker.answers import IN_FILE
from forebay.executor.worker.side import HELLO_BYTES, WAITS, parsed
from forebay.executor.worker.side import ITEMS as ITEMS_RECORD

if TYPE_CHECKING:
    from forebay._core import Connection
    from forebay.executor.engine.files import Run
    from forebay.executor.engine.link import Record
    from forebay.executor.server.worker_group import Death, Worker, WorkerGroup

__all__ = ["run_worker"]

CONNECT_S: Final = 10.0
LOOK_MS: Final = 50
"""Between two looks at a worker that starts, whose keeper may have something to report."""

READ_BYTES: Final = 1 << 16

READS_AT_ONCE: Final = 16

RECORDS_AT_ONCE: Final = 256
"""Side records that are sent in a turn; the worker waits where it says more."""

RECORDS_BEFORE_REPLY: Final = 4096
"""More than the side socket holds: all that was said before a reply goes before it."""

LAST_S: Final = 5.0
"""For the stand-in to leave, once it has the last records."""

STATE_PREFIX: Final = "forebay-"
"""Of a worker's directory of items and results."""

_log = logging.getLogger(__name__)

_COUNT: Final = struct.Struct("i")
"""Bytes that a socket has not sent, or whose arrival was not confirmed."""

Context = Callable[[], ssl.SSLContext]
"""The context of connections of this cluster's workers."""


class _LinkLostError(BrokenError):
    """The stand-in has gone; whatever else breaks here is told to it."""


@contextlib.contextmanager
def _losing() -> Iterator[None]:
    try:
        yield
    except (_LinkLostError, ProtocolError):
        raise
    except BrokenError as error:
        raise _LinkLostError(str(error), delivered=error.delivered) from error


class _NodeLink(Link):
    """A link that raises `_LinkLostError` where the stand-in has gone."""

    def flush(self) -> None:
        with _losing():
            super().flush()

    def make_room(self) -> None:
        with _losing():
            super().make_room()

    def take(self) -> Iterator[Record]:
        with _losing():
            yield from super().take()

    def keep_alive(self) -> None:
        with _losing():
            super().keep_alive()

    @property
    def unsent(self) -> int:
        """Bytes that the stand-in's machine has not confirmed."""
        in_socket = fcntl.ioctl(self.fileno(), termios.TIOCOUTQ, bytes(_COUNT.size))
        return self.pending + int(_COUNT.unpack(in_socket)[0])


def run_worker(
    told: dict[str, Any], tls: Context, give_place_back: Callable[[], None], scratch: str
) -> str | None:
    """Run a worker for its stand-in, until one of both has ended.

    Args:
        told: what to run, for whom, as `Order.told` gives it.
        tls: called where the link is to have TLS.
        give_place_back: called once, when a run first waits for its children: they may need the
            place that this task has in the cluster.
        scratch: a directory on a disk of this node, for items and large results on their way.

    Returns:
        Why the stand-in was not reached, if so: nobody waits for the worker any more, since the
        cluster has run the task again; or this node cannot connect to it, or has another version.
    """
    try:
        order = Order.of(told)
    except ConfigError as error:
        return str(error)
    try:
        link = _connect(order, tls)
    except (BrokenError, DeadlineError, OSError) as error:
        return (
            f"node {socket.gethostname()} does not reach the server at {order.host}:{order.port}:"
            f" {error}; name an address that it reaches by FOREBAY_EXECUTOR_ENGINE_HOST, and let"
            " it through the firewall"
        )
    with contextlib.closing(link):
        try:
            _run(Node.of_process(), order, link, give_place_back, scratch)
        except _LinkLostError:
            pass  # the worker was ended
        except ConfigError as error:
            _send_last(link, FAILED, str(error).encode())
        except Exception as error:  # whatever it is, the server is to tell it
            _log.exception("a worker of %s cannot go on", order.target)
            _send_last(link, FAILED, f"node {socket.gethostname()}: {error!r}".encode())
    return None


def _connect(order: Order, tls: Context) -> _NodeLink:
    connected = socket.create_connection((order.host, order.port), CONNECT_S)
    try:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Until it is our turn, where another node was first.
        patience = order.start_timeout + CONNECT_S
        connected.settimeout(patience)
        if order.is_encrypted:
            connected = tls().wrap_socket(connected)
        prove_worker(connected, bytes.fromhex(order.secret), patience)
    except BaseException:
        connected.close()
        raise
    return _NodeLink(connected, f"the server at {order.host}", order.silence)


def _send_last(link: _NodeLink, kind: int, body: bytes) -> None:
    """Send a last record, and wait until the stand-in has left.

    A socket that is closed while something waits to be read drops what it has not sent. It takes
    as long as the stand-in takes something, however slowly.
    """
    link.put(kind, 0, body)
    watched, least, moved_at = Watched(), link.unsent, time.monotonic()
    with contextlib.suppress(BrokenError, OSError):
        while time.monotonic() - moved_at < (link.silence if least else LAST_S):
            link.flush()
            watched.wait({link.fileno(): link.events}, LOOK_MS)
            for _ in link.take():
                pass
            link.keep_alive()
            if (unsent := link.unsent) < least:
                least, moved_at = unsent, time.monotonic()


def _run(
    node: Node, order: Order, link: _NodeLink, give_place_back: Callable[[], None], scratch: str
) -> None:
    with contextlib.ExitStack() as parts:
        group = parts.enter_context(node.group(order))
        lender = parts.enter_context(node.lender(order.pool))
        directory = node.new_directory()
        parts.callback(shutil.rmtree, directory, ignore_errors=True)
        state = tempfile.mkdtemp(prefix=STATE_PREFIX, dir=scratch)
        parts.callback(shutil.rmtree, state, ignore_errors=True)
        with node.lock:
            worker = group.begin()
        parts.callback(_remove, node, group, worker)
        starting = _Starting(node, group, worker, link)
        starting.wait(lambda: group.advance(worker))
        _check_code(order, starting)
        relay = parts.enter_context(
            contextlib.closing(
                _Relay(node, group, worker, link, (directory, state), give_place_back)
            )
        )
        told = {"pid": worker.pid, "host": host_identity()}
        link.put(READY, 0, json.dumps(told).encode())
        serve = starting.wait(starting.served)
        relay.begin(serve, lender, starting.early)
        _send_last(link, DIED, json.dumps(relay.run()._asdict()).encode())


def _remove(node: Node, group: WorkerGroup, worker: Worker) -> None:
    with node.lock:
        group.end(worker)
        group.remove(worker)


def _check_code(order: Order, starting: _Starting) -> None:
    """Whether the application is the same here as at the server.

    Raises:
        ConfigError: it is not.
    """
    with starting.node.lock:
        call = starting.group.ask(starting.worker, "manifest")
    manifest = starting.wait(lambda: starting.group.answer(starting.worker, call))
    code = json.loads(manifest)["code"]
    if order.code and code != order.code:
        raise ConfigError(
            f"the application on node {socket.gethostname()} has the code {code} and the server"
            f" has {order.code}; bring {order.target} there up to date"
        )


class _Starting:
    """Waits for a worker that starts, and keeps the link alive meanwhile."""

    def __init__(self, node: Node, group: WorkerGroup, worker: Worker, link: Link) -> None:
        self.node = node
        self.group = group
        self.worker = worker
        self._link = link
        self._watched = Watched()
        self._serve: dict[str, Any] | None = None
        self.early: list[Record] = []
        """What came with that, or behind it."""

    def wait(self, step: Callable[[], Any]) -> Any:
        """What `step` returns once that is something; BlockingIOError is nothing too.

        Raises:
            ConfigError: the worker will never be ready. BrokenError: the stand-in has gone.
        """
        while True:
            self._hear()
            try:
                with self.node.lock:
                    self.group.drive()
                    result = step()
            except BlockingIOError:
                result = None
            except (Error, OSError) as error:
                raise ConfigError(self._why(error)) from error
            if result:
                return result
            wanted = {self._link.fileno(): self._link.events}
            if not self.worker.ready or self.worker.fileno() >= 0:
                wanted[self.worker.fileno()] = select.POLLIN
            self._watched.wait(wanted, LOOK_MS)

    def served(self) -> dict[str, Any] | None:
        """What the stand-in says for the worker to begin, once it does.

        Raises:
            BrokenError: the worker has ended before.
        """
        if self.group.ended(self.worker) is not None:
            raise BrokenError("the worker ended before it served", delivered="no")
        return self._serve

    def _hear(self) -> None:
        self._link.keep_alive()
        for record in self._link.take():
            if record[0] == SERVE:
                self._serve = json.loads(record[2])
            else:
                self.early.append(record)
        self._link.flush()

    def _why(self, error: Exception) -> str:
        if not self.group.has_broken(error):
            return str(error)
        while True:
            with self.node.lock:
                with contextlib.suppress(Error):  # the keeper has ended, as is told next
                    self.group.drive()
                reason = self.group.start_error(self.worker)
            if reason is not None:
                return str(reason)
            self._hear()
            time.sleep(LOOK_MS / 1000)


class _Relay:
    """Carries everything of a worker that serves between it and its stand-in.

    Args:
        node: of this process.
        group: of the worker.
        worker: is ready.
        link: to the stand-in.
        directories: that of its sockets, and that of its items and results.
        give_place_back: as `run_worker` takes it.
    """

    def __init__(
        self,
        node: Node,
        group: WorkerGroup,
        worker: Worker,
        link: Link,
        directories: tuple[str, str],
        give_place_back: Callable[[], None],
    ) -> None:
        self._node = node
        self._group = group
        self._worker = worker
        self._link = link
        directory, self._state = directories
        self._directory = directory
        self._give_place_back: Callable[[], None] | None = give_place_back
        self._files = FileSender(self._state, link)
        self._tunnel = Tunnel(
            os.path.join(directory, "clients"),
            listens=True,
            send=lambda number, data: link.put(CLIENT, number, data),
            credit=lambda number, count: link.put(CREDIT, number, CREDIT_BYTES.pack(count)),
        )
        self._side_listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._side_listener.bind(os.path.join(directory, "side"))
        self._side_listener.listen(1)
        self._side: socket.socket | None = None
        self._side_is_over = False
        self._interrupts: list[bytes] = []
        """Those that the side socket has not taken."""
        self._output = -1
        self._pidfd = -1
        self._connection: Connection | None = None
        self._generation = worker.generation
        self._decode = decoder(tuple[str, list[Any], Any]).decode
        self._calls: dict[int, tuple[int, Run | None]] = {}
        """The number of each call at the stand-in, and its run, by that of here."""

    def begin(self, serve: dict[str, Any], lender: str, early: list[Record]) -> None:
        """Have the worker serve what comes over the link, first what has come already."""
        clients = os.path.join(self._directory, "clients")
        options = {
            **serve["options"],
            "pool": lender,
            "clients": clients,
            "state": self._state,
            "environment": {"FOREBAY_URL": f"unix://{clients}"},
        }
        options["items"] = {**options["items"], "synced": False}  # the stand-in's are
        with self._node.lock:
            self._connection, self._pidfd = self._group.deploy(
                self._worker,
                serve["slot"],
                serve["lane"],
                os.path.join(self._directory, "side"),
                0,
                options,
            )
        self._connection.attach()
        for record in early:
            self._take(*record)

    def run(self) -> Death:
        """Carry until the worker has ended: how.

        Raises:
            BrokenError: the stand-in has gone.
        """
        watched = Watched()
        while True:
            ready = watched.wait(self._wanted(), 0 if self._link.has_more else PING_MS)
            has_ended = self._pidfd in ready
            self._turn(ready, is_last=has_ended)
            if has_ended:
                return self._death()

    def close(self) -> None:
        """Close what it has. Idempotent."""
        self._tunnel.close()
        self._side_listener.close()
        if self._side is not None:
            self._side.close()
        if self._connection is not None:
            self._connection.close()
        for descriptor in (self._output, self._pidfd):
            if descriptor >= 0:
                os.close(descriptor)
        self._output = self._pidfd = -1

    def _wanted(self) -> dict[int, int]:
        assert self._connection is not None
        wanted = {self._pidfd: select.POLLIN, self._link.fileno(): self._link.events}
        reads, writes = self._connection.wants()
        if self._link.pending > PENDING_MAX:
            reads = False
        else:
            wanted |= self._tunnel.events()
            side = self._side_listener if self._side is None else self._side
            if not self._side_is_over:
                wanted[side.fileno()] = select.POLLIN
            if self._output >= 0:
                wanted[self._output] = select.POLLIN
        if reads or writes:
            wanted[self._connection.fileno()] = events_of(reads, writes)
        return wanted

    def _turn(self, ready: dict[int, int], *, is_last: bool) -> None:
        assert self._connection is not None
        # First: if this process was stopped for too long, what waits in the link is stale.
        self._link.keep_alive()
        if self._side is None and (self._side_listener.fileno() in ready or is_last):
            self._accept_side()
        if self._link.fileno() in ready or self._link.has_more:
            # All or none: of a server that has gone since, no call begins.
            for record in list(self._link.take()):
                self._take(*record)
        replies = self._connection.fileno() in ready or is_last
        if replies or self._connection.holds_received:
            self._send_replies()
        elif self._output in ready or (self._side is not None and self._side.fileno() in ready):
            self._send_printed(RECORDS_AT_ONCE)
        if self._interrupts:
            self._pass_interrupts()
        self._tunnel.advance(ready)
        self._link.flush()

    def _take(self, kind: int, number: int, body: bytes) -> None:
        assert self._connection is not None
        if kind == CALL:
            _, head, segments = unpack_message(body)
            method, arguments, _ = self._decode(head)
            run = (number_of(arguments[2]), arguments[3]) if method == "run" else None
            with contextlib.suppress(BrokenError, ClosedError):  # it has ended, as is seen next
                call = self._connection.start(0, head, segments, None, self._generation)
                self._calls[call] = number, run
        elif kind == SIDE:
            self._interrupts.append(body)
            self._pass_interrupts()
        elif kind == SIGNAL:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)
        elif kind == CLIENT:
            self._tunnel.take(number, body)
        elif kind == CREDIT:
            self._tunnel.take_credit(number, *CREDIT_BYTES.unpack(body))

    def _pass_interrupts(self) -> None:
        """Give the worker what its side socket takes of them, once it is there."""
        while self._side is not None and self._interrupts:
            try:
                self._side.send(self._interrupts[0])
            except OSError:  # full: again in the next turn; or it has ended
                return
            del self._interrupts[0]

    def _send_replies(self) -> None:
        """Send replies, and before them whatever the worker has said before."""
        assert self._connection is not None
        finished: list[tuple[int, Any]] = []
        with contextlib.suppress(Error):
            self._connection.flush()
            finished = self._connection.receive(0)
        self._send_printed(RECORDS_BEFORE_REPLY if finished else RECORDS_AT_ONCE)
        for call, outcome in finished:
            number, run = self._calls.pop(call, (0, None))
            if isinstance(outcome, BaseException) or not number:
                continue  # it has ended
            raised, _, head, segments = (
                outcome if isinstance(outcome, tuple) else (False, 0, outcome, None)
            )
            if run is not None:
                self._files.before_reply(run, has_result=bytes(memoryview(head)[:2]) == IN_FILE)
            self._link.put(REPLY, number, *pack_message(int(raised), head, segments))

    def _send_printed(self, at_once: int) -> None:
        """Send output and side records, as far as they are there, and so many of these."""
        side = self._side
        for _ in range(0 if side is None else at_once):
            assert side is not None
            try:
                record = side.recv(READ_BYTES)
            except OSError:
                break
            if not record:  # the worker has closed it
                self._side_is_over = True
                break
            kind, number, attempt = parsed(record)
            if kind == WAITS and self._give_place_back is not None:
                self._give_place_back()
                self._give_place_back = None
            if kind == ITEMS_RECORD:
                self._files.send_items((number, attempt))
            self._link.put(SIDE, 0, record)
        for _ in range(READS_AT_ONCE if self._output >= 0 else 0):
            try:
                data = os.read(self._output, READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                os.close(self._output)
                self._output = -1
                return
            self._link.put(OUTPUT, 0, data)

    def _accept_side(self) -> None:
        self._side_listener.setblocking(False)
        try:
            side, _ = self._side_listener.accept()
        except BlockingIOError:
            return
        side.settimeout(CONNECT_S)
        _, descriptors, _, _ = socket.recv_fds(side, HELLO_BYTES, 1)
        if descriptors:
            self._output = descriptors[0]
            os.set_blocking(self._output, False)
        side.setblocking(False)
        self._side = side

    def _death(self) -> Death:
        """How the worker ended, once its keeper has said so."""
        while True:
            with self._node.lock:
                with contextlib.suppress(Error):  # the node ends
                    self._group.drive()
                death = self._group.death(self._worker)
            if death is not None:
                break
            time.sleep(0.005)
        with self._node.lock:
            killed = death.signal == signal.SIGKILL and self._node.oom_kills.was_killed()
        return death._replace(cause="memory") if killed else death
