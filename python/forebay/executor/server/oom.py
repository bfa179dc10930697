"""Whether the kernel ended a process for want of memory.

A process that the OOM killer ended looks like one that another process killed. But the kernel
counts its kills, in the memory cgroup of the victim, before the victim is gone; so a SIGKILL after
which the count is higher than the kills that were reported so far was one of them.
Sources: "Memory Interface Files" of cgroup-v2.rst; memory.oom_control in cgroup-v1/memory.rst;
oom_kill in mm/vmstat.c. The count includes kills for want of the machine's memory.
"""

from __future__ import annotations

from pathlib import Path


class OomKills:
    """Tells kills of the OOM killer from others, among the processes of one cgroup.

    Args:
        proc: where /proc is; elsewhere in tests alone.
        cgroups: where the cgroups are mounted.
    """

    def __init__(self, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> None:
        self._counters = _counters(proc, cgroups)
        self._reported = self._count()

    def was_killed(self) -> bool:
        """Whether one of the kernel's kills was not reported yet; it counts as reported now.

        Asked once for each process that SIGKILL has ended.
        """
        if self._count() <= self._reported:
            return False
        self._reported += 1
        return True

    def _count(self) -> int:
        """Kills so far, from the first counter that there is; 0 where the kernel has no counter."""
        for path in self._counters:
            try:
                lines = path.read_text().splitlines()
            except OSError:
                continue
            for line in lines:
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    return int(value)
        return 0


def _counters(proc: Path, cgroups: Path) -> list[Path]:
    """Files that may have the counter, the one that says most about us first."""
    found = []
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        number, controllers, path = line.split(":", 2)
        inside = path.lstrip("/")
        if "memory" in controllers.split(","):
            # Where the path is not below the mount, as in a container, ours is the mount itself.
            mount = cgroups / "memory"
            found += [mount / inside / "memory.oom_control", mount / "memory.oom_control"]
        elif number == "0":
            found += [cgroups / inside / "memory.events", cgroups / "memory.events"]
    return [*found, proc / "vmstat"]
