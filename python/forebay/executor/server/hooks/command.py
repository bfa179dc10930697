"""One run of a hook's command: its input, its output, and the end of its process group."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

OUTPUT_BYTES_MAX: Final = 2_000
"""What is kept of the output; the rest is read, so that the command can go on, and dropped."""
READ_BYTES: Final = 65_536
PR_SET_PDEATHSIG: Final = 1
"""prctl(2)."""


class Command:
    """A program without a shell, in a session of its own.

    Its whole group is killed when it has ended, when its time is over, and when the hooks process
    ends: what it leaves in the background ends too. A program that begins a session of its own
    leaves the group, and lives on. Where the hooks process is killed, the kernel kills the program
    with it, and nothing else of its group.
    """

    _running: ClassVar[set[int]] = set()
    """Groups of this process's commands."""

    def __init__(self, argv: Sequence[str], environment: dict[str, str]) -> None:
        self._argv = argv
        self._environment = environment
        self._output = b""

    @classmethod
    def kill_all(cls) -> None:
        """Kill every command that runs."""
        for group in cls._running:
            _kill(group)

    async def run(self, body: bytes) -> tuple[bool, str]:
        """Whether it ended with 0, and what it wrote.

        Cancellation: it is killed with its group.

        Raises:
            OSError: it cannot be started.
        """
        process = subprocess.Popen(  # noqa: ASYNC220, a start takes a millisecond
            list(self._argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment,
            start_new_session=True,
            preexec_fn=_end_with_parent(),
        )
        assert process.stdin is not None
        assert process.stdout is not None
        self._running.add(process.pid)
        try:
            # A body is smaller than a pipe, so this does not wait for a command that does not read.
            with contextlib.suppress(BrokenPipeError), process.stdin:
                process.stdin.write(body)
            await self._end_of(process.pid, process.stdout.fileno())
        finally:
            # Before it is waited for: until then nobody else can have its number.
            _kill(process.pid)
            self._running.discard(process.pid)
            code = process.wait()
            self._read(process.stdout.fileno())
            process.stdout.close()
        said = self._output.decode(errors="replace").strip()
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        return code == 0, f"{how}: {said}" if said else how

    async def _end_of(self, pid: int, output: int) -> None:
        """Wait for the end of a process, and read what it writes meanwhile."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        os.set_blocking(output, False)
        pidfd = os.pidfd_open(pid)
        try:
            loop.add_reader(pidfd, ended.set)
            loop.add_reader(output, lambda: self._read(output) or loop.remove_reader(output))
            await ended.wait()
        finally:
            loop.remove_reader(pidfd)
            loop.remove_reader(output)
            os.close(pidfd)

    def _read(self, output: int) -> bool:
        """Read what is there; False: there will be no more."""
        try:
            data = os.read(output, READ_BYTES)
        except BlockingIOError:
            return True
        self._output += data[: OUTPUT_BYTES_MAX - len(self._output)]
        return bool(data)


def _end_with_parent() -> Callable[[], None]:
    """For a child between fork and exec: the kernel kills it when the calling thread is no more.

    All that takes a lock is done here, before the fork: the child makes two system calls.
    """
    prctl, parent = ctypes.PyDLL(None).prctl, os.getpid()

    def arm() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # the parent ended before the signal was armed

    return arm


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
