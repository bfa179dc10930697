"""A file on ext4 on a compressed RAM disk, which bounds what a run through O_DIRECT can cost.

Needs root and the module; what was made is undone however the block ends, but by SIGKILL.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.blockio.limits import unbroken

CONTROL = Path("/sys/class/zram-control")
SPARE_BYTES = 2 << 30
"""Memory that must be left besides: random blocks do not compress."""
DISK_SHARE = 1.3
"""Size of the disk over that of the file, so that there is room for ext4's tables."""
DISK_BYTES_MIN = 64 << 20
BUSY_S = 5.0


class NoZramError(Exception):
    """There can be no such disk; the message is the reason that its rows show."""


@contextmanager
def zram(source: Path) -> Iterator[Path]:
    """A copy of a file on such a disk.

    Raises:
        NoZramError: this user may not, or the kernel or the memory does not do.
    """
    _require(source.stat().st_size)
    with contextlib.ExitStack() as undo:
        try:
            device = undo.enter_context(_device(_disk_bytes(source)))
            folder = undo.enter_context(_mounted(device))
            copy = folder / source.name
            shutil.copyfile(source, copy)
            with copy.open("rb") as file:
                os.fsync(file.fileno())
        except (OSError, subprocess.CalledProcessError) as error:
            raise NoZramError(_reason(error)) from error
        yield copy


def _require(file_bytes: int) -> None:
    if os.geteuid() != 0:
        raise NoZramError("only root may make one")
    if not CONTROL.exists() and shutil.which("modprobe"):
        subprocess.run(["modprobe", "zram"], capture_output=True, check=False)
    if not CONTROL.exists():
        raise NoZramError("the kernel has no module zram")
    if shutil.which("mkfs.ext4") is None:
        raise NoZramError("mkfs.ext4 is not installed: apt-get install e2fsprogs")
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") + _reclaimable_bytes()
    if free < file_bytes + SPARE_BYTES:
        raise NoZramError(f"{free >> 20} MiB of memory are free, {file_bytes >> 20} are needed")


def _disk_bytes(source: Path) -> int:
    return max(DISK_BYTES_MIN, int(source.stat().st_size * DISK_SHARE))


def _reclaimable_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("Cached:"):
            return int(line.split()[1]) * 1024
    return 0


@contextmanager
def _device(disk_bytes: int) -> Iterator[Path]:
    """A new device of that size; another one is not touched."""
    number = int((CONTROL / "hot_add").read_text())  # reading makes it
    settings = Path(f"/sys/block/zram{number}")
    try:
        (settings / "disksize").write_text(str(disk_bytes))
        yield Path(f"/dev/zram{number}")
    finally:
        with unbroken():
            _patiently(settings / "reset", "1")
            _patiently(CONTROL / "hot_remove", str(number))


@contextmanager
def _mounted(device: Path) -> Iterator[Path]:
    """ext4 without a journal on a device, in a folder of its own."""
    _run("mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-m", "0", "-E", "nodiscard", str(device))
    with tempfile.TemporaryDirectory(prefix="forebay-bench-zram-") as folder:
        _run("mount", "-t", "ext4", str(device), folder)
        try:
            yield Path(folder)
        finally:
            with unbroken():
                _run("umount", folder)


def _patiently(setting: Path, value: str) -> None:
    """Write a setting that is refused for as long as the last user of the device lets go of it."""
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            setting.write_text(value)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def _run(*command: str) -> None:
    subprocess.run(command, capture_output=True, text=True, check=True)


def _reason(error: OSError | subprocess.CalledProcessError) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        return f"{error.cmd[0]} failed: {(error.stderr or '').strip()}"
    return str(error)
