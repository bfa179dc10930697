"""Memory in `forebay._core`: a stub alone, at run time there is no such module.

Documented in crates/python/src/memory.rs.
"""

from typing import Any, Final, Self, final

from typing_extensions import Buffer as _HasBuffer
from typing_extensions import disjoint_base

from forebay.memory import Reference

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
