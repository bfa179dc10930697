"""Run one program within bounds: time, memory, output, and everything it started.

A tuned compiler may loop, eat memory or start children that outlive it, and a miscompiled program
may print for ever; none of this may reach the caller other than as a `Finished`.

The child stays in the process group of its parent on purpose: the owner of a service ends it by
killing its group, and a compiler in a group of its own would survive that.
So a deadline here is enforced by stopping and killing the child's descendants one by one.
`subprocess` starts the child by vfork, which is safe in a process with threads.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Finished", "run_bounded"]

OUTPUT_LIMIT_BYTES = 64 * 1024
MEMORY_LIMIT_BYTES = 2 * 1024**3
FILE_LIMIT_BYTES = 64 * 1024**2


@dataclass(frozen=True, slots=True)
class Finished:
    """How a program ended.

    Attributes:
        exit_code: its exit code; None when a signal or a bound ended it.
        signal: the signal that ended it by itself, or None.
        exceeded: the bound that ended it, "time" or "output"; "" when none did.
        output: the first bytes of its stdout and stderr together.
    """

    exit_code: int | None
    signal: int | None
    exceeded: str
    output: bytes

    @property
    def good(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.exit_code == 0

    def text(self, limit: int = 400) -> str:
        """Return the first `limit` characters of the output, stripped."""
        return self.output.decode("utf-8", "replace").strip()[:limit]


def run_bounded(
    command: Sequence[str | Path],
    *,
    directory: Path,
    timeout: float,
    output_limit: int = OUTPUT_LIMIT_BYTES,
) -> Finished:
    """Run `command` in `directory` and wait for its end, at most `timeout` seconds.

    Its temporary files belong into `directory` too, so that they go with it.

    Raises:
        OSError: the program cannot be started at all.

    Affinity: any thread. Interrupts (KeyboardInterrupt) kill the program before they go on.
    """
    process = subprocess.Popen(
        command,
        cwd=directory,
        env={**os.environ, "TMPDIR": str(directory), "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    exceeded = "interrupted"
    try:
        _limit(process.pid)
        exceeded, output = _collect(process, time.monotonic() + timeout, output_limit)
    finally:
        if exceeded:
            _kill_tree(process.pid)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    if exceeded:
        return Finished(None, None, exceeded, output)
    code = process.returncode
    return Finished(code if code >= 0 else None, -code if code < 0 else None, "", output)


def _limit(pid: int) -> None:
    bounds = (
        (resource.RLIMIT_AS, MEMORY_LIMIT_BYTES),
        (resource.RLIMIT_FSIZE, FILE_LIMIT_BYTES),
        (resource.RLIMIT_CORE, 0),
    )
    with contextlib.suppress(ProcessLookupError, PermissionError, ValueError):
        for kind, value in bounds:
            resource.prlimit(pid, kind, (value, value))


def _collect(
    process: subprocess.Popen[bytes], deadline: float, output_limit: int
) -> tuple[str, bytes]:
    """Read until the output ends and the program with it; return the bound that was hit."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    output = bytearray()
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            return "time", bytes(output)
        piece = os.read(descriptor, 65536)
        if not piece:
            break
        output += piece
        if len(output) > output_limit:
            return "output", bytes(output[:output_limit])
    try:
        process.wait(max(deadline - time.monotonic(), 0.0))
    except subprocess.TimeoutExpired:
        return "time", bytes(output)
    return "", bytes(output)


def _kill_tree(pid: int) -> None:
    """Kill a child of ours that is not reaped yet, and all that descends from it.

    Each process is stopped before its children are listed, so that none is started meanwhile.
    """
    pending, found = [pid], [pid]
    while pending:
        parent = pending.pop()
        with contextlib.suppress(ProcessLookupError):
            os.kill(parent, signal.SIGSTOP)
        children = _children(parent)
        pending += children
        found += children
    for each in reversed(found):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def _children(parent: int) -> list[int]:
    entries = (entry for entry in os.listdir("/proc") if entry.isdigit())
    return [int(entry) for entry in entries if _parent_of(entry) == parent]


def _parent_of(pid: str) -> int | None:
    try:
        status = Path("/proc", pid, "stat").read_bytes()
    except OSError:
        return None  # it ended meanwhile
    # The command's name stands in parentheses and may hold anything, even parentheses.
    return int(status.rpartition(b")")[2].split()[1])
