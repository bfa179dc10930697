"""Files for block I/O."""

from __future__ import annotations

import os
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Literal, Self

from forebay import _core
from forebay.blockio.files.default import default_queue
from forebay.blockio.files.queue import Queue

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from forebay.blockio.files.async_file import AsyncBlockFile
    from forebay.blockio.files.async_queue import AsyncQueue

__all__ = ["BlockFile"]


class BlockFile(_core.BlockFile):
    """A file whose blocks are read and written in batches.

    It owns a descriptor, which only `close` closes. A batch in flight keeps it open.

    Threads: any. `with` closes at the end; `async with` gives the asyncio face, `AsyncBlockFile`.

    Args:
        path: the file, a block device, or anything that can be read at an offset.
        mode: "r" to read; "r+" to read and write what is there; "w" to read and write, made if
            need be and emptied; "x" to read and write a new file.
        direct: go around the page cache (O_DIRECT). Offsets and lengths are then multiples of
            `alignment[1]`, addresses of `alignment[0]`; blocks of an arena are.
        queue: what carries out its batches; `default_queue()` if left out.

    Raises:
        OSError: it cannot be opened; FileNotFoundError and so on.
        ConfigError: unknown mode.
    """

    __slots__ = ("_entered",)

    _entered: dict[AbstractEventLoop, list[AsyncBlockFile]]

    def __new__(
        cls,
        path: str | os.PathLike[str],
        *,
        mode: Literal["r", "r+", "w", "x"] = "r",
        direct: bool = False,
        queue: Queue | AsyncQueue | None = None,
    ) -> Self:
        """Open the file; waits as open(2) does."""
        if queue is None:
            queue = default_queue()
        elif not isinstance(queue, Queue):
            queue = queue.queue
        file = super().__new__(cls, path, mode, direct, queue)
        file._entered = {}
        return file

    def submit(
        self,
        method: Literal["read_many", "write_many", "read", "write", "fsync", "fdatasync"],
        *arguments: Any,
        **options: Any,
    ) -> Future[Any]:
        """Begin a method on the I/O thread.

        Args:
            method: its name.
            arguments: as the method has them. All buffers are lent until the future is done.
            options: likewise.

        Returns:
            A future of the method's result, see `Queue.submit`.

        Raises:
            ConfigError, ClosedError, LimitError, BrokenError: as the method; nothing was submitted.

        Threads: any. Cost: as `Queue.submit`.
        """
        queue = self.queue
        assert isinstance(queue, Queue), "opened with one"
        return queue._submit(
            lambda port, ticket: self.start(port, ticket, method, *arguments, **options)
        )

    def __enter__(self) -> Self:
        """Return the file itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    async def __aenter__(self) -> AsyncBlockFile:
        """Return the file's asyncio face for the running loop."""
        from forebay.blockio.files.async_file import AsyncBlockFile
        from forebay.blockio.files.loop_port import enter_face

        return enter_face(self._entered, AsyncBlockFile(self))

    async def __aexit__(self, *_: object) -> None:
        """Close the file, and leave the loop."""
        from forebay.blockio.files.loop_port import leave_face

        await leave_face(self._entered).aclose()
