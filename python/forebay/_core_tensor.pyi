"""Tensors in `forebay._core`: a stub alone, at run time there is no such module.

Documented in crates/python/src/tensor.
"""

from collections.abc import Sequence
from typing import Any, Final, Self, TypedDict, final

from typing_extensions import Buffer as _HasBuffer

from forebay._core_blockio import BlockFile
from forebay._core_memory import Arena
from forebay._core_transport import MessageConnection, TlsServer

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
