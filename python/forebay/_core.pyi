"""The compiled core. Private: use its classes where their systems re-export them."""

from asyncio import AbstractEventLoop
from collections.abc import Callable, Generator, Iterable, Sequence
from os import PathLike
from pathlib import Path
from selectors import SelectorKey
from typing import Any, Final, Literal, Self, TypedDict, final

from typing_extensions import Buffer as _HasBuffer
from typing_extensions import disjoint_base

from forebay.memory import Reference

__all__ = [
    "OUTBOX_BYTES_HIGH",
    "OUTBOX_BYTES_LOW",
    "STALL_BYTES_MIN",
    "TOKEN_BYTES_MAX",
    "Arena",
    "BlockBatch",
    "BlockFile",
    "BlockPort",
    "BlockQueue",
    "Borrower",
    "Buffer",
    "Connection",
    "Dispatcher",
    "Frame",
    "Handle",
    "ItemReader",
    "ItemWriter",
    "KeeperLink",
    "Lender",
    "Listener",
    "Look",
    "MessageConnection",
    "NativeHealth",
    "NativeServer",
    "NativeService",
    "NativeStore",
    "Owners",
    "Pool",
    "PreforkLoop",
    "Rows",
    "Selector",
    "StoreReader",
    "TensorBatch",
    "TensorHandle",
    "TensorLink",
    "TensorPlan",
    "TensorPort",
    "TensorShard",
    "TlsClient",
    "TlsServer",
    "Waiting",
    "WakeQueue",
    "Window",
    "begin_all",
    "connect_unix",
    "cron_fault",
    "gather_all",
    "limit_process",
    "process_has_room",
    "process_metrics",
    "rdma_devices",
    "record_checksums",
    "run_keeper",
    "stop_listening",
    "sweep_lent",
    "tensor_hello",
]

# --- memory: documented in crates/python/src/memory.rs ---

_DiscardCause = Literal["discarded", "contaminated", "reset_failed", "returned"]

@disjoint_base
class Arena:
    """Memory that this process owns and other processes may map for reading."""

    def __new__(cls, limit_bytes: int, name: str, backing: str, populate: bool) -> Self: ...
    @property
    def backing(self) -> str | None: ...
    name: Final[str]
    limit_bytes: Final[int]
    region: Final[int]
    @property
    def closed(self) -> bool: ...
    def allocate(self, n_bytes: int) -> Buffer: ...
    def view(self, reference: Reference | tuple[int, int, int, int, int]) -> Buffer: ...
    def share(self, chunk: int) -> int: ...
    def trim(self) -> int: ...
    def close(self) -> int: ...
    def stats(self) -> dict[str, int]: ...

@final
class Buffer(_HasBuffer):
    """Memory of an arena: a lease of one block, writable through the buffer protocol."""

    nbytes: Final[int]
    reference: Final[Reference]
    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    def __dlpack__(self, **keywords: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def free(self) -> None: ...
    def __len__(self) -> int: ...

@final
class Window(_HasBuffer):
    """A chunk of another process's arena, mapped read-only."""

    def __new__(cls, descriptor: int) -> Window:
        """Map the chunk behind `descriptor`, which is closed even if this raises."""
    def __len__(self) -> int: ...

@final
class Rows:
    """The same spans of several windows, read as one batch: row n comes from window n.

    A window comes with where its part begins, a span is an offset in a part and a number of bytes.
    """

    def __new__(cls, windows: list[tuple[Window, int]], spans: list[tuple[int, int]]) -> Rows: ...
    def read(self, targets: list[Any]) -> None:
        """Copy each span into one of `targets`, writable contiguous buffers of all its rows."""

# --- blockio: documented in crates/python/src/blockio ---

@disjoint_base
class BlockQueue:
    """Carries out batches of operations."""

    def __new__(
        cls,
        *,
        batch_limit: int,
        concurrency_limit: int,
        engine: str,
        threads: int,
        quarantine_bytes_max: int,
    ) -> Self: ...
    engine: Final[str]
    reason: Final[str]
    @property
    def closed(self) -> bool: ...
    def attach(self, arena: Arena) -> None: ...
    def run(
        self,
        operations: Any,
        files: BlockFile | Iterable[BlockFile],
        buffer: Any,
        *,
        exact: bool = False,
        return_errors: bool = False,
        results: Any = None,
    ) -> Any: ...
    def start(
        self,
        port: BlockPort,
        ticket: int,
        operations: Any,
        files: BlockFile | Iterable[BlockFile],
        buffer: Any,
        *,
        exact: bool = False,
        return_errors: bool = False,
        results: Any = None,
    ) -> BlockBatch: ...
    def port(self, hand_over: bool) -> BlockPort: ...
    def close(self) -> int: ...
    def stats(self) -> dict[str, Any]: ...

@disjoint_base
class BlockFile:
    """A file whose blocks are read and written in batches."""

    def __new__(
        cls, path: str | PathLike[str], mode: str, direct: bool, queue: BlockQueue
    ) -> Self: ...
    path: Final[Path]
    @property
    def closed(self) -> bool: ...
    direct: Final[bool]
    writable: Final[bool]
    @property
    def size_bytes(self) -> int: ...
    alignment: Final[tuple[int, int]]
    queue: Final[BlockQueue]
    def read_many(
        self,
        offsets: Any,
        out: Any,
        *,
        lengths: Any = None,
        exact: bool = False,
        return_errors: bool = False,
        results: Any = None,
    ) -> Any: ...
    def write_many(
        self,
        offsets: Any,
        data: Any,
        *,
        lengths: Any = None,
        exact: bool = False,
        return_errors: bool = False,
        results: Any = None,
    ) -> Any: ...
    def read(self, offset: int, out: Any, *, exact: bool = False) -> int: ...
    def write(self, offset: int, data: Any, *, exact: bool = False) -> int: ...
    def fsync(self) -> None: ...
    def fdatasync(self) -> None: ...
    def start(
        self,
        port: BlockPort,
        ticket: int,
        method: str,
        offsets: Any = None,
        memory: Any = None,
        *,
        lengths: Any = None,
        exact: bool = False,
        return_errors: bool = False,
        results: Any = None,
    ) -> BlockBatch: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...

@final
class BlockBatch:
    """A batch in flight on a port, or done."""

    @property
    def done(self) -> bool: ...
    def result(self) -> Any: ...

@final
class BlockPort:
    """Takes batches, and reports which have ended: one wake-up for many."""

    def fileno(self) -> int: ...
    def turn(self) -> list[int]: ...
    def detach(self, ticket: int, batch: BlockBatch) -> None: ...
    def drain(self, timeout: float) -> tuple[int, list[int]]: ...
    def close(self) -> None: ...

# --- executor: documented in crates/executor/src/dispatcher ---

def cron_fault(pattern: str) -> str | None: ...

@final
class StoreReader:
    """The store's database, read-only; no database: BrokenError. Any thread, one query at a time.

    Not `sqlite3` in the server's process: two copies of SQLite undo each other's locks there.
    """

    def __new__(cls, directory: str) -> StoreReader: ...
    def query(
        self, sql: str, values: Sequence[float | str | bytes | None], rows_max: int
    ) -> list[tuple[Any, ...]]:
        """The rows, at most `rows_max`; `values` are those of its question marks."""

@final
class Dispatcher:
    """Queues requests, gives them to workers. Any thread; waits let go of the GIL; None: no end."""

    def __new__(cls, settings: dict[str, Any]) -> Dispatcher: ...
    def submit(self, name: str, arguments: bytes, options: bytes | None = None) -> int:
        """Submit a request of this process; returns its ticket, see `finished`."""
    def finished(self, timeout: float | None) -> list[tuple[int, int, bytes]] | None:
        """(ticket, end, payload): 0 result, 1 what was raised, 2 a failure's JSON, 3 cancelled."""
    def cancel(self, ticket: int) -> bool:
        """Cancel what has not begun: true, and `finished` does not tell of it."""
    def install(self, manifest: bytes) -> None:
        """Check submissions against this code from now on; what waited for it is taken."""
    def hold(self, reason: str | None) -> None:
        """Dispatch nothing and refuse submissions for this reason; None: go on."""
    def watch_sources(self, paths: list[str]) -> None:
        """Order ("sources", paths) when one of these files changes."""
    def orders(self, timeout: float | None) -> list[tuple[Any, ...]] | None:
        """What the crew is to do; None once closed."""
    def orders_fileno(self) -> int:
        """Readable while `orders` would return at once; stays the dispatcher's."""
    def worker_ready(
        self, slot: int, connection: Connection, pid: int, pidfd: int, generation: int = 0
    ) -> None:
        """Hand over a worker that has started; the pidfd is given away, even if this raises."""
    def worker_failed(self, slot: int, reason: str) -> None: ...
    def worker_died(
        self,
        slot: int,
        cause: str,
        pid: int,
        exit_code: int | None,
        signal: int | None,
        peak_bytes: int | None,
        limit_bytes: int | None,
        last_output: str,
    ) -> None: ...
    def calls(self, timeout: float | None) -> list[tuple[int, str, bytes]] | None:
        """(ticket, method, arguments as a msgpack array) for the main thread; None once closed."""
    def calls_fileno(self) -> int:
        """Readable while `calls` would return at once; stays the dispatcher's."""
    def answer(self, ticket: int, head: bytes) -> None:
        """Answer a call: msgpack of `[0, value]` or `[1, refusal]`."""
    def figures(self) -> dict[str, Any]: ...
    def workers(self) -> list[dict[str, Any]]: ...
    def why(self, id: int) -> dict[str, Any] | None: ...
    def retry(self, ids: list[int]) -> list[dict[str, Any]]:
        """{"id", "status" or "refused"} of each, once that is on disk or cannot be."""
    def prune(self, rule: dict[str, Any]) -> dict[str, int]:
        """By older_s, status (words), ids (numbers), dry_run: {"pruned", "bytes"}."""
    def schedules(self) -> list[dict[str, Any]]: ...
    def set_schedule(self, name: str, paused: bool) -> bool:
        """False: no schedule has that name."""
    def drain(self, timeout: float) -> bool:
        """Dispatch and take nothing more; whether everything that ran has ended in time."""
    def wake(self) -> None:
        """Have every thread that waits in `orders`, `calls` or `finished` return."""
    def close(self) -> None: ...

# --- tensor: documented in crates/python/src/tensor ---

_Meanings = list[TensorHandle | list[str]]
_Limit = float | None

def tensor_hello(slots: int, *, shared_memory: bool = True, verbs: bool = False) -> bytes: ...
def rdma_devices() -> list[tuple[str, int, int, bool]] | str: ...

@final
class TensorHandle:
    id: Final[int]
    generation: Final[int]
    dtype: Final[str]
    item_bytes: Final[int]
    shape: Final[tuple[int, ...]]
    rows: Final[int]
    row_bytes: Final[int]

class _ShardLimits(TypedDict, total=False):
    """What a shard grants its clients; in parentheses what it is where it is left out."""

    slots: int  # requests that a client may have there (1024)
    grant_bytes: int  # bytes of responses that a client may have there (16 MiB)
    tensors_max: int  # (65536)
    peers_max: int  # (4096)
    liveness: float  # seconds after which a peer that takes nothing is let go (5)
    staging_bytes: int  # memory for rows of files on their way (64 MiB)

@final
class TensorShard:
    def __new__(
        cls,
        entrances: Sequence[tuple[list[int], str | None, TlsServer | None, bytes | None]],
        *,
        name: str = "the server",
        limits: _ShardLimits | None = None,
        handshake: float = 5.0,
        note: bytes | None = None,
        shared_memory: bool = True,
        verbs: Arena | None = None,
        verbs_needed: bool = False,
        own: bool = False,
    ) -> Self: ...
    incarnation: Final[int]
    def open(self) -> None: ...
    def publish(
        self, name: str, dtype: str, kind: str, item_bytes: int, shape: Sequence[int], memory: Any
    ) -> tuple[int, int]: ...
    def publish_file(
        self,
        name: str,
        dtype: str,
        kind: str,
        item_bytes: int,
        shape: Sequence[int],
        file: BlockFile,
        *,
        offset: int,
        stride_bytes: int,
        first: int = 0,
        checksums: bool = False,
    ) -> tuple[int, int]: ...
    def drop(self, name: str) -> None: ...
    def write(
        self, key: tuple[int, int], rows: Any, count: int | None, values: Any, *, add: bool = False
    ) -> int: ...
    def metrics(self) -> dict[str, Any]: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...

@final
class TensorPort:
    def __new__(cls) -> Self: ...
    def fileno(self) -> int: ...
    def turn(self) -> list[int]: ...
    def wait(self) -> list[int] | None: ...
    def close(self) -> None: ...

@final
class TensorBatch:
    def __len__(self) -> int: ...
    @property
    def done(self) -> bool: ...
    def wait(self, timeout: _Limit = None, *, each: bool = False) -> list[int]: ...
    def arrived(self) -> list[int]: ...
    def failure(self, index: int) -> Exception | None: ...
    def first_failure(self) -> tuple[int, Exception] | None: ...
    def version(self, index: int) -> int: ...
    def meanings(self) -> _Meanings: ...
    def cancel(self) -> None: ...

@final
class TensorLink:
    def __new__(
        cls,
        connection: MessageConnection,
        welcome: _HasBuffer,
        *,
        piece_bytes: int = 1 << 20,
        entries_max: int = 256,
        waiting_max: int = 65_536,
        liveness: float = 5.0,
    ) -> Self: ...
    peer: Final[str]
    slots: Final[int]
    grant_bytes: Final[int]
    incarnation: Final[int]
    note: Final[bytes]
    offers_verbs: Final[bool]
    @property
    def fabric(self) -> str: ...
    def offer_verbs(self, arena: Arena, slots: int) -> bytes: ...
    def use_verbs(self, connection: MessageConnection, welcome: Any, *, needed: bool) -> None: ...
    def refuse_verbs(self, why: str) -> None: ...
    def leave_blocks(self) -> bool: ...
    @property
    def closed(self) -> bool: ...
    def probe(self) -> bool: ...
    def read(self, handle: TensorHandle, first: Any, count: int | None, out: Any) -> bool: ...
    def plan(self, pulls: Any) -> TensorPlan: ...
    def look_up(self, names: list[str], timeout: _Limit = None) -> _Meanings: ...
    def pull_many(self, pulls: Any, timeout: _Limit = None, versions: Any = None) -> None: ...
    def push_many(self, pushes: Any, timeout: _Limit = None, versions: Any = None) -> None: ...
    def begin(
        self, pulls: Any, pushes: Any = None, timeout: _Limit = None, *, versions: bool = False
    ) -> TensorBatch: ...
    def start(
        self,
        port: TensorPort,
        ticket: int,
        pulls: Any,
        pushes: Any = None,
        *,
        each: bool = False,
        timeout: _Limit = None,
        driver: TensorPort | None = None,
        versions: bool = False,
    ) -> TensorBatch: ...
    def attend(self, port: TensorPort) -> None: ...
    def start_look_up(
        self, port: TensorPort, ticket: int, names: list[str], timeout: _Limit = None
    ) -> TensorBatch: ...
    def close(self) -> None: ...
    def metrics(self) -> dict[str, Any]: ...

@final
class TensorPlan:
    def read(self) -> bool: ...

# --- transport; what is written in capitals: documented in crates/transport/src/limit.rs ---

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

        `is_open`: it has also read the server's.
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

def stop_listening() -> None:
    """In a forked child: let go of every listening socket, and its lock, that the parent has."""

def connect_unix(path: str | PathLike[str], timeout: float | None = None) -> int:
    """Connect to a Unix socket, waiting for room in its queue; the caller closes the descriptor.

    Raises:
        DeadlineError: its queue was full until then. BrokenError: no process listens.
    """

# --- pool ---

_Answer = tuple[int, Handle | None, int, int]
_Pairs = list[tuple[bytes, bytes]]
_Limits = tuple[int, int, int, int, bool, bool]
"""Bytes of memory, thousandths of a core, open files, processes (0: none), only advice."""

@final
class Handle:
    """A lease, or a lease to be: a service's slot in its pool and the generation of the slot."""

    @property
    def slot(self) -> int:
        """Number of the service's place in the pool."""
    @property
    def generation(self) -> int:
        """Grows with each lease of the slot, 64 bits; what came before is stale."""
    @property
    def tag(self) -> int:
        """The part of the generation that travels with calls, 32 bits."""

@final
class WakeQueue:
    """Notifies a caller or an event loop that it pays to look again."""

    def __new__(cls) -> WakeQueue: ...
    def fileno(self) -> int:
        """The descriptor that is readable after a notification; it stays the queue's."""
    def drain(self) -> list[int]:
        """Take the notifications without waiting: tickets, or 0 for a death or an output."""

@final
class Pool:
    """The client's side of a pool of at most `max_size` services; it starts nothing by itself.

    Any thread may call any method, and only `wait` and `close` wait; a waiting thread also drives.
    Times that end in `_ms` are milliseconds, timeouts are seconds.
    A key says which services are interchangeable, a template number which one forks them: both are
    counted by the caller.
    In a forked child every method raises ConfigError but `forked`, and `close` does nothing.

    Raises:
        LimitError: `max_size` is 0 or above half of the services of one keeper.
        StaleError: a method was given a handle whose lease has ended.
        ClosedError: the pool was closed.
        BrokenError: the keeper is gone.
        OSError: a system call failed.
    """

    def __new__(
        cls,
        max_size: int,
        *,
        max_running: int | None = None,
        max_uses: int = 0,
        lifetime_ms: int = 0,
        ping_after_ms: int = 0,
    ) -> Pool: ...
    def watch(self) -> int:
        """A new descriptor, readable when `drive` has something to do; it is the caller's to close.

        It stays valid when the pool is closed.
        """
    def handover(self) -> tuple[int, int, int] | None:
        """What a new keeper is started with, as descriptors 3, 4 and 5; None where one runs.

        Returns:
            Control socket, page of words and pidfd of this process, all the caller's to close.
        """
    def attach(self, pidfd: int) -> int:
        """Take over the pidfd of a keeper that was started with the last handover.

        Returns:
            The keeper's number, from 1; it knows no template yet.
        """
    def epoch(self) -> int:
        """The number of the keeper that runs; 0 where none does."""
    def describe(
        self,
        template: int,
        arguments: list[bytes],
        environment: _Pairs,
        directory: bytes,
        setup: bytes,
        spares: int,
    ) -> None:
        """Tell the keeper how a template is started, and what it is to be told first.

        From its second service on, it has so many processes forked ahead.
        """
    def take(self, key: int) -> Handle | None:
        """Lend an idle service that owes no answer, where there is one; never waits."""
    def ask(self, key: int) -> _Answer:
        """Ask for a service.

        Returns:
            `(0, handle, settled, 0)`: lent; unless settled (1) its answer is read before its use.
            `(1, handle, 0, 0)`: the caller starts one by `fork` or `launch`, then calls `lend`.
            `(2, None, ticket, grace_ms)`: wait; after the grace, where it is not 0, call `hurry`.
        """
    def await_on(self, ticket: int, queue: WakeQueue) -> None:
        """Have `queue` notified once the ticket is granted, at once where it has been."""
    def collect(self, ticket: int) -> _Answer | None:
        """What a ticket was granted, as from `ask`; None where it still waits."""
    def refill(self, key: int) -> Handle | None:
        """Room for a service that is to be kept ready, as from an answer that says start."""
    def keep(self, key: int, min_idle: int) -> None:
        """Keep so many idle services of a key, however long they are idle."""
    def share(self, key: int, leases: int) -> None:
        """One service of a key may have so many leases at once; they have the same handle."""
    def open(self, handle: Handle) -> None:
        """A lent service has answered what it owed: others may join it, where its key is shared."""
    def release_shared(self, handle: Handle, closed: bool) -> bool:
        """One of several leases of a service ends; false where it is the last.

        The last is released or discarded. With `closed` no lease joins the service any more.
        """
    def hurry(self, ticket: int) -> None:
        """Rather have a service started than wait for a reset."""
    def leave(self, ticket: int) -> None:
        """Give a ticket up; what it was granted meanwhile goes to the next."""
    def fork(
        self,
        handle: Handle,
        template: int,
        *,
        start_ms: int,
        idle_ms: int,
        private_bytes_max: int = 0,
        limits: _Limits | None = None,
    ) -> int:
        """Have a service forked from a template that was described.

        Args:
            handle: from an answer that says start.
            template: its number.
            start_ms: after this the keeper ends a service that was not lent.
            idle_ms: after this the keeper ends it when it is idle; 0: never.
            private_bytes_max: above this it is not lent again; 0: no limit.
            limits: what it may use; None: nothing is limited.

        Returns:
            The caller's end of the service's socket, given away.
        """
    def branch(
        self,
        parent: Handle,
        key: int,
        *,
        start_ms: int,
        idle_ms: int,
        limits: _Limits | None = None,
    ) -> tuple[Handle, int]:
        """Have a copy of a lent service made; the holder tells the service itself to fork.

        Returns:
            The lease to be, and the caller's end of the copy's socket, given away.
        """
    def launch(
        self,
        handle: Handle,
        arguments: list[bytes],
        environment: _Pairs,
        directory: bytes,
        *,
        start_ms: int,
        idle_ms: int,
        readiness: tuple[int, bytes] = ...,
        caller_looks: bool = False,
        own: int | None = ...,
        stdio: bool = False,
        private_bytes_max: int = 0,
        limits: _Limits | None = None,
    ) -> int:
        """Have a program started as a service.

        Otherwise as `fork`; `arguments` begins with the path of the executable. A null byte in
        `arguments`, in values of `environment` and in `directory` becomes the service's directory.

        Args:
            handle: what `ask` or `collect` gave.
            arguments: path and arguments.
            environment: its whole environment.
            directory: its working directory.
            start_ms: milliseconds until it must be ready; 0: no limit.
            idle_ms: milliseconds after which it is ended when idle; 0: never.
            readiness: who notices that it is ready. `(0, b"")`: itself, by a byte on its socket,
                which is its descriptor 3; `(1, pattern)`: the keeper, by a line; `(2, name)`: the
                keeper, by a file in its directory; `(3, b"")`: that it runs. With all but the first
                the keeper writes to the socket: process id and two lengths as little-endian u32,
                the directory, and the line or the file's content.
            caller_looks: what is written says only where to look: a start that nobody has confirmed
                by `lend` when its deadline comes is ended.
            own: a socket that becomes its descriptor 3; given away.
            stdio: that socket becomes its stdin and stdout instead.
            private_bytes_max: as for `fork`.
            limits: as for `fork`.

        Raises:
            LimitError: arguments and environment are longer than a control message.
        """
    @staticmethod
    def check_pattern(pattern: str) -> None:
        """Raise ConfigError where the keeper cannot match a line against a pattern."""
    def lend(self, handle: Handle, key: int) -> int | None:
        """Lend a service that the caller started and that is ready.

        Returns:
            Its process id; None where the keeper has not reported it yet, or ended it.
        """
    def process(self, handle: Handle) -> tuple[int, int] | None:
        """Process id and pidfd of a service; None where the keeper has not reported them.

        The pidfd stays the pool's, which keeps it until the service's slot is used again.
        """
    def release(self, handle: Handle, reset_ms: int | None = None) -> None:
        """Give a service back: at once, or with a deadline for the reset that it was sent."""
    def abandon(self, handle: Handle, answered: bool) -> None:
        """Leave a start that is under way to the next caller.

        Args:
            handle: of the start.
            answered: the caller has read that it is ready, so nothing more comes to its socket.
        """
    def discard(self, handle: Handle, cause: _DiscardCause = "discarded") -> None:
        """Have a service ended; its successor may start at once.

        One that was "returned" is as it should be, and first does what it does before its end.
        """
    def death(
        self, handle: Handle, queue: WakeQueue | None = None
    ) -> tuple[str, int, int, bytes, int, int] | None:
        """How a lent service ended; None where that is not known, then `queue` is notified of it.

        Returns:
            Cause, process id (0: there was none), exit code or signal, output, and in bytes the
            most memory that it used and its limit (0: not known).
        """
    def end_overdue(self, handle: Handle) -> None:
        """Have a service ended because a call took too long; its holder keeps the lease."""
    def heavy(self) -> int:
        """Leased services that have more private memory than the pool keeps."""
    def directory(self, handle: Handle) -> str:
        """The directory of a lent service; empty until the keeper has reported it."""
    def follow(self, handle: Handle, beyond: int) -> None:
        """Ask the keeper for what a service writes beyond so many bytes; it comes to `written`."""
    def written(
        self, handle: Handle, beyond: int, queue: WakeQueue | None = None
    ) -> tuple[int, bytes] | None:
        """How many bytes a service wrote in all, and the newest of them.

        None while they are not more than `beyond`, then `queue` is notified of more.
        """
    def ask_output(self, handle: Handle) -> None:
        """Ask the keeper for what a service wrote; the answer comes to `output`."""
    def output(self, handle: Handle, queue: WakeQueue | None = None) -> bytes | None:
        """The answer to `ask_output`, once; None before it has come, then `queue` is notified."""
    def dead_idle(self) -> list[Handle]:
        """Last leases of services that ended while idle, each reported once.

        What the caller kept for them can go.
        """
    def drive(self) -> None:
        """Handle whatever has happened; never waits."""
    def wait(self, queue: WakeQueue, timeout: float | None) -> None:
        """Wait without the GIL until `queue` is notified or there was something to drive.

        It returns at the timeout too, and at a signal after its handlers ran; what they raise is
        raised from here.
        """
    def stats(self) -> list[tuple[str, int]]:
        """Sizes now, and counters since the pool was made, by name."""
    def deaths(self) -> list[tuple[str, int]]:
        """Deaths since the pool was made, by cause."""
    def services(self) -> list[tuple[int, int, int, bool, int, int]]:
        """Of each service: slot, generation, process id, lent or not, key, ms of its lease."""
    def keep_notes(self, wanted: bool) -> None:
        """Keep notes of what happens from now on, or no longer."""
    def take_notes(
        self, queue: WakeQueue | None = None
    ) -> list[tuple[int, str, int, int, int, int, str | None]]:
        """Take the notes; where there are none, `queue` is notified when there may be.

        Each has milliseconds since 1970, what happened, key, process id, slot, generation and,
        of an end or a death, the cause.
        """
    def close(self, timeout: float) -> None:
        """End every service and the keeper, and wait for it without the GIL. Idempotent.

        A keeper that has not ended after the timeout is killed. Waiters are woken.
        """
    def forked(self) -> None:
        """In a forked child: let go of what belongs to the parent; never waits."""

@final
class KeeperLink:
    """A template's end of its keeper. `socket` is given away. Waiting holds the GIL: one thread."""

    def __new__(cls, socket: int) -> KeeperLink: ...
    def setup(self) -> tuple[bytes, str] | None:
        """Wait for what to import, and the first service's directory; None at the keeper's end."""
    def ready(self) -> None:
        """Say that services can be forked."""
    def unfit(self, reason: bytes) -> None:
        """Say why services cannot be forked; the reason is the user's to read."""
    def branch(self, connection: Connection) -> str | None:
        """In a service: fork the copy of it that the keeper orders next.

        In the copy: its directory, and `connection`, unconnected before, is its own.
        In the original None, also where the keeper could not order it.
        """
    def refuse(self) -> None:
        """In a service: take an order for a copy and do not make it."""
    def report_exit_hooks(self) -> None:
        """In a service: report that it has exit hooks to run before it ends."""
    def await_end(self) -> None:
        """In a service: wait, without the GIL, until the keeper has let go of it."""

@final
class PreforkLoop:
    """Where a service that is still to be forked gets its calls from.

    A template runs the serving loop and waits in it for the first call; that wait is where it
    forks, between Python's own hooks. Each child goes on from there with a socket of its own.

    Args:
        keeper: the template's end of its keeper.
        connection: made by `Connection.unconnected`; in a child it gets the service's socket.
        prepare: called in the template after each fork, with the directory of the next service.
    """

    def __new__(
        cls, keeper: KeeperLink, connection: Connection, prepare: Callable[[str], object]
    ) -> PreforkLoop: ...
    @property
    def is_service(self) -> bool:
        """Whether this is a service, and not the template."""
    def next_call(self) -> _Call | None:
        """Wait for the next call, as `Connection.next_call`; in the template fork until the end."""

_Told = tuple[Any, ...]
"""An answer of the lender, by the number that it begins with:

1 status: sizes and counters, deaths by cause. 2 kind: its number.
3 lent: handle, process id (0: not known yet), owed call (0: none), whether its preface was read,
socket and pidfd (-1 where this program has them). 4 start: handle, socket.
5 met: process id, pidfd. 6 died: cause, process id, code, text. 7 output: text.
8 services: rows of slot, process id, name, state, holder and age in seconds; where to go on, or 0.
9 drained: services ended, services marked. 10 refused: limit, maximum, value, what to do.
11 failed: why. Descriptors are the caller's to close.
"""

class _LenderConfig(TypedDict):
    """What a lender allows, and how long. Times ending in `_ms` are ms."""

    max_size: int  # services at once, of all kinds and for all programs
    max_running: int  # services lent at once
    max_uses: int  # leases that one service serves; 0: any number
    lifetime_ms: int  # 0: for ever
    private_bytes_max: int  # of a service until it is not lent again; 0: any number
    spares: int  # processes that each template keeps forked ahead
    leases_max: int  # services that one program may hold at once
    waiters_max: int  # questions of one program that may wait at once
    start_ms: int  # from start to ready
    idle_ms: int  # idle until ended
    reset_ms: int  # from reset to answer

@final
class Lender:
    """A pool and the socket on which it is lent. One thread runs it.

    Raises:
        ConfigError: the directory is not this user's alone, or another process lends there.
        LimitError: `max_size` is 0 or above half of the services of one keeper.
        OSError: a system call failed.
    """

    def __new__(
        cls,
        path: str | PathLike[str],
        *,
        wake: int,
        config: _LenderConfig,
    ) -> Lender:
        """Listen; `wake` is given away, its duplicates make `run` return when readable."""
    def run(self) -> bool | str:
        """Serve until a keeper is wanted (True), `wake` is readable (False), or there is news."""
    def handover(self) -> tuple[int, int, int] | None:
        """As `Pool.handover`."""
    def attach(self, pidfd: int) -> int:
        """As `Pool.attach`."""
    def close(self, timeout: float) -> None:
        """End every service, wait for the keeper without the GIL, remove the socket. Idempotent."""

@final
class Borrower:
    """A program's connection to a lender.

    Any thread may call any method; only `wait` and `take` wait. What asks returns a ticket, to
    which the answer comes.

    Raises:
        BrokenError: no lender is there, or it is gone.
        ConfigError: it belongs to another user; or this is a forked child's copy.
        ClosedError: this end was closed.
        LimitError: a question is longer than a control message.
    """

    def __new__(cls, path: str | PathLike[str]) -> Borrower: ...
    def kind(
        self,
        digest: bytes,
        name: bytes,
        template: bytes,
        arguments: list[bytes],
        environment: _Pairs,
        directory: bytes,
        setup: bytes,
        limits: _Limits | None,
    ) -> int:
        """Ask for the number of a kind; `template` is a digest, empty for a program."""
    def take(self, key: int, patience: float) -> _Told | int:
        """Ask for a service and wait so many seconds: the answer, or else the ticket."""
    def lend(self, handle: Handle) -> int:
        """Say that a started service is ready: 5 or 6."""
    def death(self, handle: Handle) -> int:
        """Ask how a lent service ended: 6, once it has."""
    def output(self, handle: Handle) -> int:
        """Ask what a lent service wrote: 7."""
    def status(self) -> int:
        """Ask for sizes and counters: 1."""
    def services(self, from_: int) -> int:
        """Ask for the services from a slot on: 8."""
    def drain(self, name: bytes) -> int:
        """Have the services of a name (empty: all) ended, those on lease when they come back: 9."""
    def release(self, handle: Handle, owed: int) -> None:
        """Give a service back; `owed` is the call of its reset, 0 where it had none."""
    def abandon(self, handle: Handle, owed: int, met: bool) -> None:
        """Leave a start to the next caller; `owed` is the call that makes it, 0: answered."""
    def end_overdue(self, handle: Handle) -> None:
        """As `Pool.end_overdue`."""
    def discard(self, handle: Handle, cause: _DiscardCause = "discarded") -> None:
        """Have a service ended."""
    def look(self, ticket: int, queue: WakeQueue | None = None) -> _Told | None:
        """The answer, where it is there; otherwise `queue` is notified of the ticket."""
    def wait(self, ticket: int, timeout: float | None = None) -> _Told | None:
        """Wait for the answer without the GIL; None after `timeout` seconds. Signals run."""
    def leave(self, ticket: int) -> _Told | None:
        """Give a question up; its answer, where it was there already."""
    def drive(self) -> None:
        """Take in what has come; never waits."""
    def watch(self) -> int:
        """A new descriptor, readable when `drive` has something to do; the caller's to close."""
    @property
    def ended(self) -> bool:
        """Whether the lender is known to be gone."""
    @property
    def over(self) -> bool:
        """The same after a look at the socket."""
    def close(self) -> None:
        """Let go; the lender ends what this program holds. Idempotent."""
    def forked(self) -> None:
        """In a forked child, before anything else: let go of what is the parent's."""

def run_keeper(control: int, page: int, client: int, scratch: str | PathLike[str]) -> None:
    """Be the keeper until the client is gone; without the GIL, in a process of its own.

    Args:
        control: the control socket, given away like the two that follow.
        page: the page of words.
        client: the pidfd of the client.
        scratch: the directory under which services get their own.
    """

def record_checksums(
    records: _HasBuffer, record_bytes: int, stride_bytes: int, numbers: _HasBuffer | None = None
) -> bytes:
    """The CRC-32C of each whole record of a run of records, as one little-endian u32 each.

    Args:
        records: any contiguous buffer; not written meanwhile.
        record_bytes: of each record, without what follows it, 1 or more.
        stride_bytes: from the start of one to the start of the next, at least `record_bytes`.
        numbers: as little-endian i8[n] or u8[n], one for each record, summed behind its bytes.

    Raises:
        ConfigError: a record is empty or longer than the stride, or has no number.
    """
