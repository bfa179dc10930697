"""A result that lies in a file of the server, as its client takes it: mapped, not sent.

The server says where the file is. The client opens nothing there but a file of its own user, of the
length that was said, under the name of the request that it asked for, and never writes to it.
Where it cannot have that one (it was pruned meanwhile, or the client is in a container that does
not see it), it asks for the result itself.
"""

from __future__ import annotations

import mmap
import os
import stat
import threading
import weakref
from typing import Final

__all__ = ["file_of"]

MAPPED_MAX: Final = 64
"""Files that are mapped at once, each of which holds a descriptor; further ones are read."""

_DIRECTORY: Final = b"results"
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_lock = threading.Lock()
_mapped: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


def file_of(path: bytes, size: int, id_: str) -> mmap.mmap | bytearray | None:
    """The memory of a result in a file; None where it cannot be had.

    It may be written to: pages that are become the process's own, and the file stays as it is.
    Nobody writes to the file of a result, so that a mapping does not lose its end.
    The file's blocks are free when it was pruned and the last view of the memory has gone.

    Args:
        path: as the server said.
        size: its length in bytes.
        id_: of the request.

    Threads: any. Cost: three system calls, and reading the file only where too many are mapped.
    """
    directory, name = os.path.split(path)
    if name != id_.encode() or os.path.basename(directory) != _DIRECTORY:
        return None
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError:
        return None
    try:
        return _memory(descriptor, size)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _memory(descriptor: int, size: int) -> mmap.mmap | bytearray | None:
    found = os.fstat(descriptor)
    ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
    if not ours or found.st_size != size:
        return None
    with _lock:
        if len(_mapped) < MAPPED_MAX:
            access = mmap.PROT_READ | mmap.PROT_WRITE
            mapped = mmap.mmap(descriptor, size, flags=mmap.MAP_PRIVATE, prot=access)
            _mapped.add(mapped)
            return mapped
    return _read(descriptor, size)


def _read(descriptor: int, size: int) -> bytearray | None:
    content = bytearray(size)
    left = memoryview(content)
    while left:
        count = os.readv(descriptor, [left])
        if count == 0:
            return None
        left = left[count:]
    return content
