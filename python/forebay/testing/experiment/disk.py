"""The fault of a full disk: a small file system of its own, and a file that fills it."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from forebay.errors import Error
from forebay.testing.experiment.injector import Injected
from forebay.testing.experiment.schedule import Planned

__all__ = ["FullDisk", "SmallDisk"]

DISK_BYTES: Final = 192 << 20
BALLAST: Final = "ballast"
PIECE: Final = bytes(1 << 16)

_NEW_USER, _NEW_MOUNTS = 0x1000_0000, 0x2_0000  # clone(2)
_RECURSIVE_PRIVATE = 16384 | 1 << 18  # MS_REC | MS_PRIVATE, mount(2)


class SmallDisk:
    """A directory on a file system of its own, where this process may make one.

    The file system is mounted in a namespace of this process and its children alone: it is gone
    with them, however they end. So it must be made while this process has one thread.

    Args:
        directory: exists, and is empty.

    Attributes:
        directory: the same; on an ordinary file system where `refusal` says why.
        refusal: why there is no small one.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.refusal = _refusal(directory)

    def close(self) -> None:
        """Unmount it, so that its directory can be removed."""
        if self.refusal is None:
            libc = ctypes.CDLL(None, use_errno=True)
            libc.umount2(os.fsencode(self.directory), 2)  # MNT_DETACH


def _refusal(directory: Path) -> str | None:
    if len(os.listdir("/proc/self/task")) > 1:
        return "a small file system can be mounted by a process with one thread alone"
    try:
        _mount(directory)
    except OSError as error:
        return (
            "this user may mount no small file system"
            f" ({error.strerror}); it needs root, or user namespaces"
        )
    return None


def _mount(directory: Path) -> None:
    """Mount it in a namespace of this process.

    A user who is not root first makes a user namespace, in which they keep their number and get
    the rights to mount. Source: user_namespaces(7), mount_namespaces(7).
    """
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        _call(libc.unshare, _NEW_MOUNTS)
    else:
        _call(libc.unshare, _NEW_USER | _NEW_MOUNTS)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _call(libc.mount, b"none", b"/", None, _RECURSIVE_PRIVATE, None)
    options = f"size={DISK_BYTES},mode=0700".encode()
    _call(libc.mount, b"tmpfs", os.fsencode(directory), b"tmpfs", 0, options)


def _call(function: Callable[..., int], *arguments: object) -> None:
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class FullDisk:
    """Fills the disk that the server and the application write to.

    Args:
        disk: theirs.
    """

    def __init__(self, disk: SmallDisk) -> None:
        self._disk = disk

    def reason_not(self) -> str | None:
        """As of every injector."""
        return self._disk.refusal

    def inject(self, planned: Planned) -> Injected | None:
        """Take everything that is left."""
        if self._disk.refusal is not None:
            raise Error("the disk is not the experiment's own, and must not be filled")
        ballast = self._disk.directory / BALLAST
        taken = _fill(ballast)
        text = f"{taken / 1e6:.0f} MB taken for {planned.lasts:.1f} s"
        return Injected(text, lambda: ballast.unlink(missing_ok=True))


def _fill(ballast: Path) -> int:
    """Write a file until nothing more fits; how large it became."""
    taken = 0
    with contextlib.ExitStack() as stack:
        file = os.open(ballast, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        stack.callback(os.close, file)
        for piece in (PIECE, PIECE[:4096]):
            while True:
                try:
                    taken += os.write(file, piece)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    break
    return taken
