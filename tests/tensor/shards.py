"""Servers for tests: in this process by shards, or in one of their own that can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from forebay.tensor import TensorServer

ROOT = Path(__file__).parents[2]
PATIENCE_S = 30.0


@contextmanager
def serving(
    folder: Path, tensors: Mapping[str, Any], shards: int = 1, **options: Any
) -> Iterator[list[TensorServer]]:
    """Servers of this process on Unix sockets, one for each shard."""
    url = url_in(folder)
    with ExitStack() as stack:
        yield [
            stack.enter_context(TensorServer(tensors, url, shard=shard, shards=shards, **options))
            for shard in range(shards)
        ]


def url_in(folder: Path) -> str:
    """Where the shards listen."""
    return f"unix://{folder}/{{shard}}.sock"


class ServerProcess:
    """A server in a process of its own.

    Args:
        url: where it listens.
        fill: what all numbers of its tensors "small" (10 rows of 4 f4) and "large" (64 rows of
            64 KiB) are.
        does: "wait" for its end; "fork" a child when it is told to; or "write" other numbers to
            "large", one after the other.

    Attributes:
        pid: of the process.
        url: what clients connect to, with the port that was chosen.
    """

    def __init__(self, url: str, fill: float = 1.0, does: str = "wait") -> None:
        command = [sys.executable, "-m", "tests.tensor.server_program", url, str(fill), does]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        self._has_child = False
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        assert self.url, "the server did not start"
        self.pid = self._process.pid

    def stop(self) -> None:
        """Have it do nothing any more, until it is continued; returns when that is so."""
        os.kill(self.pid, signal.SIGSTOP)
        until(lambda: state_of(self.pid) == "T")

    def go_on(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it, as the kernel does when memory runs out; its child goes on. Idempotent."""
        self._process.kill()
        self._process.wait(PATIENCE_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        if not self._has_child:
            self.end_child()

    def fork(self) -> None:
        """Have it fork a child, which has all its descriptors, sleeps, and outlives it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "forked\n"
        self._has_child = True

    def end_child(self) -> None:
        """Have the child end that was forked. Idempotent."""
        if self._process.stdin is not None:
            self._process.stdin.close()


def until(there: Callable[[], bool]) -> None:
    """Wait for something that happens in another process or thread."""
    end = time.monotonic() + PATIENCE_S
    while not there():
        assert time.monotonic() < end, "waited for in vain"
        time.sleep(0.002)


def state_of(pid: int) -> str:
    """What a process does, by the kernel's letter: R, S, T."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
