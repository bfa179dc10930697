"""Transport in `forebay._core`: a stub alone, at run time there is no such module.

Limits are documented in crates/transport/src/limit.rs.
"""

from asyncio import AbstractEventLoop
from collections.abc import Callable, Generator, Iterable, Sequence
from os import PathLike
from selectors import SelectorKey
from typing import Any, Final, Self, final

from typing_extensions import Buffer as _HasBuffer
from typing_extensions import disjoint_base

from forebay._core_memory import Buffer

OUTBOX_BYTES_HIGH: Final[int]
OUTBOX_BYTES_LOW: Final[int]
STALL_BYTES_MIN: Final[int]
TOKEN_BYTES_MAX: Final[int]

@disjoint_base
class Selector:  # what an event loop waits on; documented in `forebay.transport`
    def __new__(
        cls, report: Callable[[BaseException, Any], object], spin_us: int | None = None
    ) -> Self: ...
    def register(self, fileobj: Any, events: int, data: Any = None) -> SelectorKey: ...
    def unregister(self, fileobj: Any) -> SelectorKey: ...
    def modify(self, fileobj: Any, events: int, data: Any = None) -> SelectorKey: ...
    def get_key(self, fileobj: Any) -> SelectorKey: ...
    def find(self, fileobj: Any) -> SelectorKey | None: ...
    def registered(self) -> list[int]: ...
    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    def fileno(self) -> int: ...
    def attach(self, fd: int, events: int, callback: Callable[[int], object]) -> None: ...
    def change(self, fd: int, events: int) -> None: ...
    def detach(self, fd: int) -> bool: ...
    def metrics(self) -> dict[str, int]: ...

_Segments = list[Any] | None
_Call = tuple[int, int, Any, list[Frame] | None, float | None, bool, bool]

@final
class ItemReader:
    """The calling end of one stream, made by asking for it; one thread or task reads it."""

    def __new__(
        cls,
        connection: Connection,
        codec: int,
        head: bytes,
        segments: _Segments,
        timeout: float | None,
        generation: int,
        credit: int,
        queue: bool,
    ) -> ItemReader:
        """Send the call; `queue`: its items come by `poll`, else by `wait`."""
    @property
    def id(self) -> int:
        """The call's number."""
    def wait(self) -> Any:
        """Wait for what comes next, see `poll`. Past the deadline the stream is left.

        Raises:
            DeadlineError, BrokenError, ProtocolError, ClosedError.
        """
    def poll(self) -> Any:
        """Take what is there, and give credit back for what was taken before.

        Returns:
            Items as outcomes of `Connection.call`, the last one first; an empty list if there are
            none yet. At the end None, or an outcome that says what was raised.
        """
    def leave(self) -> None:
        """Give the stream up; what still comes of it is dropped."""

@final
class ItemWriter:
    """The serving end of one running stream.

    Its methods return what the stream may do: 0 wait, 1 go on, 2 its caller has left, 3 it is late.
    """

    def __new__(cls, connection: Connection, id: int, codec: int) -> ItemWriter: ...
    @property
    def id(self) -> int:
        """The call's number."""
    def send(self, head: bytes, segments: _Segments) -> int:
        """Send an item, without waiting; LimitError without credit for it."""
    def hold(self, head: bytes, segments: _Segments) -> int:
        """The same, but a short item waits for the next flush."""
    def readiness(self) -> int:
        """What it may do."""

def sweep_lent() -> None:
    """Take back what peers gave back after their connections ended, as opening one does too."""

@final
class Connection:
    """One end of a connection over a stream socket, or TLS over one.

    Any thread may call any method; waiting methods let go of the GIL.
    Codecs are numbers: 0 msgpack, 1 pickle. Timeouts are seconds.
    """

    def __new__(
        cls,
        descriptor: int,
        *,
        server: bool = False,
        peer: str = "the peer",
        tls: TlsServer | TlsClient | None = None,
        host: str = "",
        token: bytes | None = None,
        expected: bytes | None = None,
        trusted: bool = False,
        by_reference: bool = True,
    ) -> Connection:
        """Take over the connected socket `descriptor`; it is closed even if this raises.

        With `by_reference`, large buffers of calls with a process of this user on a Unix socket
        travel through shared memory, where the other end wants that too.
        """
    @staticmethod
    def unconnected(peer: str) -> Connection:
        """The serving end of a connection to be; a `PreforkLoop` gives it its socket."""
    def call(
        self, codec: int, head: bytes, segments: _Segments, timeout: float | None, generation: int
    ) -> Any:
        """Call and wait.

        Returns:
            The head of a plain reply in the same codec, as `bytes` or, if long, a `Frame`;
            otherwise `(raised, codec, head, segments)`.

        Raises:
            DeadlineError, BrokenError, StaleError, ProtocolError, LimitError, ClosedError.
        """
    def start(
        self,
        codec: int,
        head: bytes,
        segments: _Segments,
        timeout: float | None,
        generation: int,
        one_way: bool = False,
    ) -> int:
        """Send a call without waiting; returns its id. Its outcome comes from `receive`."""
    def begin(self, codec: int, head: bytes, segments: _Segments, generation: int) -> int:
        """Send a call without waiting; returns its id. Its outcome comes from `settle`."""
    def settle(self, id: int, codec: int, timeout: float | None, kept: Any = None) -> Any:
        """Wait for the outcome of a call that was begun, also put into `kept`; it goes on."""
    def hand_over(self, id: int, queue: bool) -> None:
        """Have the outcome of a call that was begun come from `receive` (true) or `settle`."""
    def receive(self, codec: int) -> list[tuple[int, Any]]:
        """Read what is there: `(id, outcome as of call, or exception)` of finished calls."""
    def next_call(self, timeout: float | None = None) -> _Call | None:
        """Wait for a call; None once there are no more.

        A call is `(id, codec, head, segments, remaining, one_way, stream)`, remaining in seconds.
        """
    def disable_spin(self) -> None:
        """Take calls without spinning for the next one from now on, as a worker does.

        Neither before a sleep nor while calls are queued: a cancel of a queued call is found later.
        """
    def next_work(self) -> _Call | None:
        """Wait for a call, or until a stream that runs need not wait: then None."""
    def take_granted(self) -> list[int]:
        """Take the ids of running streams that were given credit since."""
    def take_ready(self) -> list[int]:
        """Take the ids of streams of the queue that have received something since."""
    def cancelled_streams(self) -> int:
        """Streams that were given up and may still run at the other side; reads what came."""
    def poll_calls(self, count: int) -> list[_Call]:
        """Take up to `count` received calls without waiting."""
    def take_cancelled(self) -> list[int]:
        """Take the ids of running calls whose callers cancelled or left."""
    def reply(self, id: int, codec: int, head: bytes, segments: _Segments = None) -> bool:
        """Answer a call without waiting; true if nothing is left to send."""
    def fail(self, id: int, codec: int, head: bytes) -> bool:
        """Answer a call with a description of what it raised; true if nothing is left to send."""
    @property
    def answer_bytes_max(self) -> int:
        """The longest answer that both ends take, in bytes."""
    def fail_expired(self, id: int) -> None:
        """End a running stream whose time has run out."""
    def fail_cancelled(self, id: int) -> None:
        """Answer a cancelled call."""
    def drain(self, timeout: float | None = None) -> None:
        """Wait until the kernel has everything queued so far."""
    def cork(self) -> None:
        """From now on let frames wait for `flush`, up to 64 KiB of them."""
    def flush(self) -> bool:
        """Hand queued bytes to the kernel; true if nothing is left."""
    def cancel(self, id: int) -> None:
        """Give up a call; its late reply is dropped."""
    def is_cancelled(self, id: int) -> bool:
        """Look at the socket: has the caller of this running call cancelled or left?"""
    def attach(self) -> None:
        """Become the only reader; blocked threads follow."""
    def detach(self) -> None:
        """Stop being the reader."""
    def goodbye(self) -> None:
        """Announce that no new calls are taken."""
    def ping(self) -> None:
        """Ask for a sign of life, counted in `pongs`."""
    @property
    def generation(self) -> int:
        """The newest generation of a call that came, which is that of the call taken last."""
    def set_generation(self, generation: int) -> None:
        """Refuse calls of older generations."""
    def watch(self, pidfd: int) -> None:
        """Take over the peer's pidfd: once it is readable, the peer has ended."""
    def peer_died(self) -> None:
        """The watched peer ended: deliver what it sent, then break."""
    def wants(self) -> tuple[bool, bool]:
        """Whether a selector should watch for readable and for writable."""
    @staticmethod
    def resume(descriptor: int, peer: str, is_open: bool) -> Connection:
        """Go on as caller with a socket on which another process has said the preface.

        `is_open`: it has also read the server's. What is lent is renewed, see `renew`.
        """
    def renew(self) -> None:
        """Go on after another process has used the socket: both ends forget what they lent.

        Segments that are held stay as they are. Nothing is sent before the next call.
        """
    def is_quiescent(self, outstanding: int) -> bool:
        """Whether another process could go on: no partial frame, `outstanding` calls in flight."""
    def handshake(self, timeout: float | None) -> None:
        """Wait until the peer has said who it is.

        Raises:
            BrokenError, ProtocolError: what ended the connection before that.
            DeadlineError, BusyError.
        """
    def is_open(self) -> bool:
        """Whether the peer's preface was read."""
    def forget_call(self, id: int) -> None:
        """Leave the answer to a call to another process."""
    def expect_reply(self, id: int) -> None:
        """Wait for the answer to a call of another process from now on."""
    def close_local(self) -> None:
        """Close this duplicate of the socket; other processes keep theirs. Idempotent."""
    def probe(self) -> bool:
        """Look at the socket where no thread reads it; whether a new call may succeed."""
    @property
    def leaving(self) -> bool:
        """Whether the server said that it takes no new calls."""
    @property
    def holds_received(self) -> bool:
        """Whether input lies here of which the socket says nothing: receive again at once."""
    def fileno(self) -> int:
        """The socket's descriptor, -1 once closed."""
    def close(self) -> None:
        """Close now; waiting calls end with ClosedError. Idempotent."""
    def counters(self) -> dict[str, int]:
        """What was counted."""
    @property
    def fault(self) -> BaseException | None:
        """The exception that ended the connection, or None."""
    @property
    def in_flight(self) -> int:
        """Calls whose answers have not been taken."""
    @property
    def outbox_bytes(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    @property
    def over(self) -> bool:
        """Whether nothing more will come from the peer."""
    @property
    def trusted(self) -> bool:
        """Whether the kernel says that the peer is the same user."""
    peer: Final[str]

def begin_all(
    connections: list[Connection],
    codec: int,
    messages: list[tuple[bytes, _Segments]],
    generations: list[int],
    timeout: float | None,
) -> list[Any]:
    """Begin one call on each connection without waiting.

    Returns:
        For each the call's id, or the exception that it ended with.
    """

def gather_all(
    connections: list[Connection], codec: int, ids: list[int], timeout: float | None, look: bool
) -> list[Any]:
    """Wait until the calls that were begun have ended, or the timeout.

    With `look` it looks for the answers before it sleeps, which pays where they come soon.

    Returns:
        For each an outcome as from `Connection.receive`, or None where the call goes on past the
        timeout. After an exception, such as a signal handler's, nothing is known of any of them.
    """

@final
class Frame(_HasBuffer):
    """Bytes of a received frame: a writable buffer, aligned to 64 bytes."""

    def __len__(self) -> int: ...

@final
class Listener:
    """A listening Unix socket with a private file."""

    def __new__(cls, path: str | PathLike[str]) -> Listener: ...
    def accept(self) -> int | None:
        """Take a waiting connection's descriptor, which is the caller's to close."""
    def fileno(self) -> int: ...
    def close(self) -> None:
        """Stop listening and remove the file. Idempotent."""

@final
class Owners:
    """Asks the kernel whose process a loopback peer is; ConfigError where it does not tell."""

    def __new__(cls, listening: int) -> Owners: ...
    def complaint(self, connected: int) -> str | None: ...

@final
class Waiting:
    """What `recv` and `send` of a message connection return: to be awaited, or made a task of."""

    def __await__(self) -> Generator[Any, None, Any]: ...
    def __iter__(self) -> Generator[Any, None, Any]: ...
    def __next__(self) -> Any: ...
    def send(self, _value: Any) -> Any: ...
    def throw(self, kind: Any, value: Any = None, _traceback: Any = None) -> Any: ...
    def close(self) -> None: ...

@final
class MessageConnection:
    """One end of a connection of messages: the core under both faces.

    Args:
        descriptor: a connected, nonblocking stream socket; given away, also where this raises.
        peer: what errors call the other end.
        token: what is shown to it, to be let in.
        expected: what it must show.
        trusted: whether memory for what it announces is obtained at once.
        limits: names and values, see `forebay.transport.Limits`.
        tls: what accepts or connects; without it, the socket is used as it is.
        host: what was dialled, for TLS.
        allocate: gives memory to receive a long frame into, see `forebay.transport.connect`.
        shared: through shared memory; the socket is a Unix socket, and its lifeline.
    """

    def __new__(
        cls,
        descriptor: int,
        *,
        peer: str,
        token: bytes | None = None,
        expected: bytes | None = None,
        trusted: bool = False,
        limits: dict[str, int] | None = None,
        allocate: Callable[[int], _HasBuffer] | None = None,
        shared: bool = False,
        tls: TlsServer | TlsClient | None = None,
        host: str = "",
    ) -> MessageConnection: ...
    def allocate(self, n_bytes: int) -> Buffer:
        """Memory that the peer sees: a frame in it is sent without a copy. For `shared` ones."""
    def bind(self, event_loop: AbstractEventLoop) -> None:
        """Have `event_loop` step the connection from now on; in its thread, once."""
    def on_ready(self, events: int) -> None:
        """Events of the socket: 1 readable, 2 writable. For a selector that calls back."""
    def on_readable(self) -> None: ...
    def on_writable(self) -> None: ...
    def recv(self) -> Waiting:
        """Await the next message, a list of frames."""
    def recv_many(self, count: int) -> Waiting:
        """Await a list of the messages that are there, at least one and at most `count`."""
    def handshake(self) -> Waiting:
        """Await that the peer is let in, and has let us in as far as it tells."""
    def flushed(self) -> Waiting:
        """Await that everything sent so far is with the kernel."""
    def send(self, frames: Any) -> Waiting:
        """Send one message at once; await that its buffers are free and there is room for more."""
    def send_many(self, messages: Iterable[Any]) -> Waiting:
        """The same with several messages, in as few system calls as possible."""
    def recv_blocking(self, timeout: float | None = None) -> list[Any]:
        """Wait for the next message without the GIL."""
    def send_blocking(self, frames: Any, timeout: float | None = None) -> None: ...
    def send_many_blocking(self, messages: Iterable[Any], timeout: float | None = None) -> None: ...
    def handshake_blocking(self, timeout: float | None = None) -> None: ...
    def flush_blocking(self, timeout: float | None = None) -> None: ...
    def close(self) -> None:
        """Close at once. Idempotent."""
    def end_if_stalled(self, allowed: float) -> bool:
        """End it if the peer has not moved on for so many seconds; whether it had not.

        Only what the peer is in the middle of counts: half a message, or output that it does not
        take. The first call begins to measure.
        """
    @property
    def peer(self) -> str:
        """What errors call the other end."""
    @property
    def closed(self) -> bool:
        """Whether nothing more can be sent or comes, also while no one reads."""
    @property
    def closed_cleanly(self) -> bool:
        """Whether the peer closed it between two messages."""
    def is_lent(self, buffer: Any) -> bool:
        """See `forebay.transport.AsyncConnection.is_lent`."""
    def fileno(self) -> int: ...
    def tls_peer(self) -> dict[str, Any] | None:
        """What a handshake of TLS found out; None before its end, and without TLS."""
    def metrics(self) -> dict[str, int]: ...

@final
class NativeService:
    """What answers messages in the thread of a `NativeServer`."""

    @staticmethod
    def echo() -> NativeService: ...
    @staticmethod
    def store(store: NativeStore) -> NativeService: ...
    @staticmethod
    def health(health: NativeHealth) -> NativeService: ...
    @staticmethod
    def forward(
        *,
        address: tuple[str, int] | None = None,
        path: str | PathLike[str] | None = None,
        token: bytes | None = None,
        limits: dict[str, int] | None = None,
    ) -> NativeService: ...
    @staticmethod
    def table(services: dict[bytes, NativeService], hands_over: bool) -> NativeService: ...

@final
class NativeStore:
    """Values by key, served while others put and delete them."""

    def __new__(cls) -> NativeStore: ...
    def put(self, key: bytes, value: Any, copy: bool) -> None: ...
    def delete(self, key: bytes) -> bool: ...
    def __contains__(self, key: bytes, /) -> bool: ...
    def __len__(self) -> int: ...
    def metrics(self) -> dict[str, int]: ...

@final
class NativeHealth:
    """The answer to health checks."""

    def __new__(cls, status: str) -> NativeHealth: ...
    def set(self, status: str) -> None: ...
    @property
    def status(self) -> str: ...

@final
class NativeServer:
    """A listener whose thread never takes the GIL; with `own` for this user alone over TCP."""

    def __new__(
        cls,
        service: NativeService,
        *,
        descriptors: list[int],
        path: str | PathLike[str] | None,
        expected: bytes | None,
        trusted: bool,
        limits: dict[str, int] | None,
        handshake: float,
        stall: float,
        own: bool = False,
    ) -> NativeServer: ...
    def fileno(self) -> int:
        """Readable when connections were handed over, and once the thread has ended."""
    def take(self, peer: str) -> list[MessageConnection] | None:
        """Connections that were handed over; None once the thread has ended."""
    def stop(self) -> None:
        """Begin to close: accept no more, answer what was received."""
    def close(self) -> None:
        """Close, and wait for the thread. Idempotent."""
    def metrics(self) -> dict[str, Any]: ...

@final
class TlsServer:
    """What accepts TLS connections; made once, shared by listeners."""

    def __new__(
        cls,
        certificate: str | PathLike[str],
        key: str | PathLike[str],
        *,
        client_ca: str | PathLike[str] | None = None,
        alpn: Sequence[str] | None = None,
        min_version: str = "1.3",
    ) -> TlsServer: ...
    def reload(self) -> None:
        """Read the files again now; where that fails, what was read before stays in use."""
    @property
    def failure(self) -> str | None:
        """Why the newest files are not in use, if so."""
    def handshakes(self) -> dict[str, int]: ...

@final
class TlsClient:
    """What opens TLS connections; made once and shared, so that sessions are resumed."""

    def __new__(
        cls,
        ca: str | PathLike[str],
        *,
        identity: tuple[str | PathLike[str], str | PathLike[str]] | None = None,
        server_name: str | None = None,
        check_hostname: bool = True,
        alpn: Sequence[str] | None = None,
        min_version: str = "1.3",
    ) -> TlsClient: ...
    def reload(self) -> None:
        """Read the files again now; where that fails, what was read before stays in use."""
    @property
    def failure(self) -> str | None:
        """Why the newest files are not in use, if so."""
    def handshakes(self) -> dict[str, int]: ...

@final
class Look:
    """Looks for input on a socket of Python's before its reader sleeps, where that has paid."""

    def look(self, socket: int) -> None:
        """Look for at most 60 us, without the GIL, until input is there; often not at all."""

def limit_process(bytes_max: int | None = None, connections_max: int | None = None) -> None:
    """Set limits of this process, see `forebay.transport.set_process_limits`."""

def process_has_room() -> bool:
    """Whether this process may have one more connection; a "no" is counted."""

def process_metrics() -> dict[str, int]:
    """See `forebay.transport.process_metrics`."""

def transport_totals() -> dict[str, Any]:
    """Bytes that all connections have moved, and open ones by their scheme."""

def stop_listening() -> None:
    """In a forked child: let go of every listening socket, and its lock, that the parent has."""

def connect_unix(path: str | PathLike[str], timeout: float | None = None) -> int:
    """Connect to a Unix socket, waiting for room in its queue; the caller closes the descriptor.

    Raises:
        DeadlineError: its queue was full until then. BrokenError: no process listens.
    """
