"""Opening another process's chunk for reading, without a descriptor travelling.

A process of the same user may open what another one has open, through `/proc/<pid>/fd`.
That a number is used for it, and no descriptor is passed, is safe for these reasons:

- The kernel lets only the same user (or root) follow that link, and a chunk of another user is
  refused here once more by its owner.
- A chunk is sealed (`F_SEAL_SHRINK`, `F_SEAL_GROW`, `F_SEAL_FUTURE_WRITE`): it cannot become
  smaller under a reader, and cannot be mapped for writing by anybody. Both are checked.
- The process may end meanwhile and its number be given to another one. A pidfd does not keep that
  from happening, but it shows: where it is not readable *after* the link was opened, the process
  lived all the while, and the number was its own.
"""

from __future__ import annotations

import os
import select

from forebay._core import Window
from forebay.errors import BrokenError, ConfigError

__all__ = ["open_window"]


def open_window(pidfd: int, pid: int, descriptor: int) -> Window:
    """Map the chunk that process `pid` has open as `descriptor`.

    Args:
        pidfd: of that process; stays yours.
        pid: its number.
        descriptor: what its `Arena.share` gave there, still open.

    Returns:
        A read-only buffer of the whole chunk, whose bytes change as their owner writes them; valid
        for as long as it is used, also after the process has ended.

    Raises:
        BrokenError: the process has ended or has closed the descriptor.
        ConfigError: it is no chunk of an arena, or belongs to another user.

    Threads: any. Cost: some 20 us, and a page fault per page at the first access.
    Source: proc_pid_fd(5), fcntl(2) on sealing, pidfd_open(2).
    """
    try:
        ours = os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError as error:
        if has_ended(pidfd):  # its files then belong to root
            raise BrokenError(f"process {pid} has ended", delivered="no") from error
        raise ConfigError(
            f"process {pid} cannot be inspected: {error.strerror}; it must be of the same user"
            " and dumpable"
        ) from error
    except OSError as error:
        raise BrokenError(
            f"process {pid} has no descriptor {descriptor} any more: {error.strerror}",
            delivered="no",
        ) from error
    if has_ended(pidfd):
        os.close(ours)
        raise BrokenError(f"process {pid} has ended", delivered="no")
    return Window(ours)


def has_ended(pidfd: int) -> bool:
    """Whether the process of a pidfd has ended; never waits."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(0))
