"""The compiled core. Private: use its classes where their systems re-export them."""

from os import PathLike
from typing import Any, Self, final

from typing_extensions import Buffer as _HasBuffer
from typing_extensions import disjoint_base

from forebay.memory import Reference

__all__ = ["Arena", "Buffer"]

# --- memory: documented in crates/python/src/memory.rs ---

@disjoint_base
class Arena:
    """Memory that this process owns and other processes may map for reading."""

    def __new__(cls, limit_bytes: int, name: str) -> Self: ...
    @property
    def name(self) -> str: ...
    @property
    def limit_bytes(self) -> int: ...
    @property
    def region(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def allocate(self, n_bytes: int) -> Buffer: ...
    def view(self, reference: Reference | tuple[int, int, int, int, int]) -> Buffer: ...
    def trim(self) -> int: ...
    def close(self) -> int: ...
    def stats(self) -> dict[str, int]: ...

@final
class Buffer(_HasBuffer):
    """Memory of an arena: a lease of one block, writable through the buffer protocol."""

    @property
    def nbytes(self) -> int: ...
    @property
    def reference(self) -> Reference: ...
    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    def free(self) -> None: ...
    def __len__(self) -> int: ...

# --- transport ---

_Segments = list[Any] | None
_Call = tuple[int, int, Any, list[Frame] | None, float | None, bool]

@final
class Connection:
    """One end of a connection over a Unix stream socket.

    Any thread may call any method; waiting methods let go of the GIL.
    Codecs are numbers: 0 msgpack, 1 pickle. Timeouts are seconds.
    """

    def __new__(
        cls, descriptor: int, *, server: bool = False, peer: str = "the peer"
    ) -> Connection:
        """Take over the connected socket `descriptor`; it is closed even if this raises."""
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
    def settle(self, id: int, codec: int, timeout: float | None) -> Any:
        """Wait for the outcome of a call that was begun, as `call`; past the timeout it goes on."""
    def hand_over(self, id: int, queue: bool) -> None:
        """Have the outcome of a call that was begun come from `receive` (true) or `settle`."""
    def receive(self, codec: int) -> list[tuple[int, Any]]:
        """Read what is there; `(id, outcome)` of each finished call, outcome as from `call` or an exception."""
    def next_call(self, timeout: float | None = None) -> _Call | None:
        """Wait for a call: `(id, codec, head, segments, remaining, one_way)`; None once there are no more."""
    def poll_calls(self, count: int) -> list[_Call]:
        """Take up to `count` received calls without waiting."""
    def take_cancelled(self) -> list[int]:
        """Take the ids of running calls whose callers cancelled or left."""
    def reply(self, id: int, codec: int, head: bytes, segments: _Segments = None) -> bool:
        """Answer a call without waiting; true if nothing is left to send."""
    def fail(self, id: int, codec: int, head: bytes) -> bool:
        """Answer a call with a description of what it raised; true if nothing is left to send."""
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
        """Give the reader's place up."""
    def goodbye(self) -> None:
        """Say that no new calls are taken."""
    def ping(self) -> None:
        """Ask for a sign of life, counted in `pongs`."""
    def set_generation(self, generation: int) -> None:
        """Refuse calls of older generations."""
    def watch(self, pidfd: int) -> None:
        """Take over the peer's pidfd: once it is readable, the peer has ended."""
    def peer_died(self) -> None:
        """The watched peer ended: deliver what it sent, then break."""
    def wants(self) -> tuple[bool, bool]:
        """Whether a selector should watch for readable and for writable."""
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
    def outbox_bytes(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    @property
    def over(self) -> bool:
        """Whether nothing more will come from the peer."""
    @property
    def trusted(self) -> bool:
        """Whether the kernel says that the peer is the same user."""
    @property
    def peer(self) -> str: ...

@final
class Frame(_HasBuffer):
    """Bytes of a received frame: a writable buffer, aligned to 64 bytes."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Listener:
    """A listening Unix socket with a private file."""

    def __new__(cls, path: str | PathLike[str]) -> Listener: ...
    def accept(self) -> int | None:
        """Take a waiting connection's descriptor, which is the caller's to close."""
    def fileno(self) -> int: ...
    def close(self) -> None:
        """Stop listening and remove the file. Idempotent."""

def connect_unix(path: str | PathLike[str]) -> int:
    """Connect to a Unix socket; returns a descriptor, which is the caller's to close."""
