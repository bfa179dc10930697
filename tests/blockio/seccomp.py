"""System calls that the kernel refuses: for ever, or as a function decides. 64-bit x86 alone.

A filter is for good, also for threads that are started later; use it in a process of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import signal
import struct
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

import pytest

IO_URING_SETUP: Final = 425
IO_URING_ENTER: Final = 426
IO_URING_REGISTER: Final = 427

needs_filters: Final = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the filters are those of 64-bit x86"
)

_SYS_SECCOMP: Final = 317
_PR_SET_NO_NEW_PRIVS: Final = 38
_SET_MODE_FILTER: Final = 1
_NEW_LISTENER: Final = 1 << 3
_WAIT_KILLABLE: Final = 1 << 5
"""Since Linux 5.19: a signal does not end a call that is being decided, and so none comes twice."""
_ALLOW: Final = 0x7FFF0000
_ERRNO: Final = 0x00050000
_USER_NOTIF: Final = 0x7FC00000
_LOAD: Final = 0x20
_JUMP_EQUAL: Final = 0x15
_RETURN: Final = 0x06
_RECEIVE: Final = 0xC0502100
_SEND: Final = 0xC0182101
_CONTINUE: Final = 1

_NOTICE: Final = struct.Struct("<QIIiIQ6Q")
_ANSWER: Final = struct.Struct("<QqiI")
_INSTRUCTION: Final = struct.Struct("<HBBI")


class Enter(NamedTuple):
    """A call of io_uring_enter."""

    to_submit: int
    min_complete: int


class Says(NamedTuple):
    """What a call returns that the kernel never gets to see: a count, or a negative errno."""

    value: int


Decide = Callable[[Enter], Says | None]
"""What a call returns; None: let the kernel have it."""


def forbid(call: int, number: int) -> None:
    """Have a system call fail with an errno, in this thread and those that it starts."""
    _install(call, _ERRNO | number, 0)


def decide_enters(decide: Decide) -> None:
    """Have a function decide each io_uring_enter of this thread, and of those that it starts."""
    ready: list[int] = []
    installed = threading.Event()

    def serve() -> None:  # started before the filter is there, and so without it
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        installed.wait()
        _serve(ready[0], decide)

    threading.Thread(target=serve, daemon=True).start()
    ready.append(_install(IO_URING_ENTER, _USER_NOTIF, _NEW_LISTENER | _WAIT_KILLABLE))
    installed.set()


def _serve(listener: int, decide: Decide) -> None:
    while True:
        notice = bytearray(_NOTICE.size)
        try:
            fcntl.ioctl(listener, _RECEIVE, notice)
        except FileNotFoundError:  # a signal ended the call before it was looked at; it comes again
            continue
        identity, *_, to_submit, min_complete, _, _, _ = _NOTICE.unpack(notice)
        said = decide(Enter(to_submit, min_complete))
        if said is None:
            answer = (identity, 0, 0, _CONTINUE)
        else:
            answer = (identity, max(said.value, 0), min(said.value, 0), 0)
        with contextlib.suppress(FileNotFoundError):  # the process ends
            fcntl.ioctl(listener, _SEND, bytearray(_ANSWER.pack(*answer)))


def _install(call: int, action: int, flags: int) -> int:
    program = b"".join(
        [
            _INSTRUCTION.pack(_LOAD, 0, 0, 0),
            _INSTRUCTION.pack(_JUMP_EQUAL, 0, 1, call),
            _INSTRUCTION.pack(_RETURN, 0, 0, action),
            _INSTRUCTION.pack(_RETURN, 0, 0, _ALLOW),
        ]
    )
    kept = ctypes.create_string_buffer(program, len(program))
    count = len(program) // _INSTRUCTION.size
    described = struct.pack("<HxxxxxxQ", count, ctypes.addressof(kept))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    result = libc.syscall(_SYS_SECCOMP, _SET_MODE_FILTER, flags, described)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)
