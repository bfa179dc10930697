"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import resource
from pathlib import Path


def processor() -> str:
    """The processor's name, as far as the kernel tells it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def load() -> float:
    """Processes that wanted to run, averaged over the last minute."""
    return os.getloadavg()[0]


def raise_open_files() -> None:
    """Allow this process as many descriptors as its user may have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def description() -> dict[str, str | int | float]:
    """Kernel, processor, cores and load, for the head of the table and for the rows."""
    return {
        "kernel": platform.release(),
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load_before": load(),
    }
