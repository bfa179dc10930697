"""A control group with a memory limit and a share of the processor, for the length of a block.

Both versions: with version 1 the two controllers lie in trees of their own.
Source: cgroups(7).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import processes

ROOT = Path("/sys/fs/cgroup")
PERIOD_US = 100_000
_PERIODS = ("periods", "throttled")


@dataclass(frozen=True, slots=True)
class Cgroup:
    """A group that a program may be started in.

    Attributes:
        memory: its directory of the memory controller.
        cpu: its directory of the cpu controller; with version 2 the same.
    """

    memory: Path
    cpu: Path

    @property
    def _is_unified(self) -> bool:
        return (self.memory / "memory.max").exists()

    def enter(self) -> None:
        """Move this process in; for the child between fork and exec."""
        for directory in {self.memory, self.cpu}:
            (directory / "cgroup.procs").write_text(str(os.getpid()))

    def limit(self, memory_bytes: int, cores: float) -> None:
        """Set what its processes may use together."""
        quota = int(cores * PERIOD_US)
        if self._is_unified:
            (self.memory / "memory.max").write_text(str(memory_bytes))
            (self.cpu / "cpu.max").write_text(f"{quota} {PERIOD_US}")
        else:
            (self.memory / "memory.limit_in_bytes").write_text(str(memory_bytes))
            (self.cpu / "cpu.cfs_quota_us").write_text(str(quota))

    def kills(self) -> int:
        """Processes of it that the kernel has killed for want of memory."""
        name = "memory.events" if self._is_unified else "memory.oom_control"
        return _field(self.memory / name, "oom_kill")

    def anonymous_bytes(self) -> int:
        """Memory of its processes that no file backs."""
        name = "anon" if self._is_unified else "total_rss"
        return _field(self.memory / "memory.stat", name)

    def stalled(self) -> float:
        """Part of the periods so far in which its quota of the processor was used up."""
        periods, stalled = (_field(self.cpu / "cpu.stat", f"nr_{it}") for it in _PERIODS)
        return stalled / periods if periods else 0.0

    def end(self) -> None:
        """Kill what is in it, and remove it."""
        for directory in {self.memory, self.cpu}:
            while pids := (directory / "cgroup.procs").read_text().split():
                for pid in map(int, pids):
                    _kill(pid)
            directory.rmdir()


@contextmanager
def cgroup(memory_bytes: int, cores: float) -> Iterator[Cgroup]:
    """A new group with these limits.

    Raises:
        PermissionError: this user may not make one, or there is no such controller.
    """
    name = f"forebay-bench-{os.getpid()}"
    unified = (ROOT / "cgroup.controllers").exists()
    memory, cpu = (ROOT, ROOT) if unified else (ROOT / "memory", ROOT / "cpu")
    made = Cgroup(memory / name, cpu / name)
    try:
        for directory in {made.memory, made.cpu}:
            directory.mkdir()
        made.limit(memory_bytes, cores)
    except OSError as error:
        raise PermissionError(f"no control group can be made below {ROOT}: {error}") from error
    try:
        yield made
    finally:
        made.end()


def _field(path: Path, name: str) -> int:
    for line in path.read_text().splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    raise ValueError(f"{path} has no {name}")


def _kill(pid: int) -> None:
    try:
        process = os.pidfd_open(pid)
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    processes.wait_for_end(process)
