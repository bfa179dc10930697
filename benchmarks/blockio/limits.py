"""A memory limit for contestants whose file is larger than it, and a disk that reads little ahead.

Both are settings of the machine: whoever enters this changes them, and they are set back however
the block ends, but by SIGKILL.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.cgroup import Cgroup, cgroup

ENDING = (signal.SIGINT, signal.SIGTERM)
READ_AHEAD_KB = 128
"""The kernel's own default; some distributions and machines set far more, which hurts np.memmap."""


@contextmanager
def unbroken() -> Iterator[None]:
    """Ignore SIGINT and SIGTERM while something is put back that must be; main thread alone."""
    # A mask would be this thread's own: numpy's and the queue's threads take the signal then.
    before = {each: signal.signal(each, signal.SIG_IGN) for each in ENDING}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def read_ahead_setting(path: Path) -> Path:
    """Where the kernel keeps the read-ahead of the disk that a file lies on.

    Raises:
        FileNotFoundError: the file system is on no disk of its own.
    """
    device = os.stat(path).st_dev
    block = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    for disk in (block, block.parent):  # a partition lies below its disk
        setting = disk / "queue" / "read_ahead_kb"
        if setting.exists():
            return setting
    raise FileNotFoundError(f"{path} is on no block device whose read-ahead can be set")


@contextmanager
def read_ahead(path: Path, kilobytes: int = READ_AHEAD_KB) -> Iterator[None]:
    """Set the read-ahead of the disk that a file lies on, and set it back."""
    setting = read_ahead_setting(path)
    before = setting.read_text()
    setting.write_text(str(kilobytes))
    try:
        yield
    finally:
        with unbroken():
            setting.write_text(before)


@contextmanager
def limits(path: Path, memory_bytes: int) -> Iterator[Cgroup]:
    """A control group with so much memory and all cores, and `READ_AHEAD_KB` for the file's disk.

    Raises:
        OSError: this user may not, or the machine has no such thing.
    """
    cores = float(os.cpu_count() or 1)
    with cgroup(memory_bytes, cores) as group, read_ahead(path):
        yield group
