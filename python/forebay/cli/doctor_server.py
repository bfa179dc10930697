"""The checks of `forebay doctor` for servers of requests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from forebay._units import size
from forebay.cli.cgroup import own_cgroup
from forebay.cli.finding import MISSING, NOTE, OK, Finding

NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "ceph", "lustre", "glusterfs"}
)
"""File systems on which SQLite's locks and its shared memory cannot be relied upon."""

FREE_BYTES_MIN = 1_000_000_000
"""The bytes that ended requests may take by default."""


def server_findings() -> list[Finding]:
    """Check what servers of requests use, without starting one."""
    from forebay.errors import ConfigError

    try:
        return [*_state(), *_memory(), *_terminal(), *_servers()]
    except ConfigError as error:
        return [Finding("configuration", MISSING, str(error), "see: forebay config")]


def _state() -> Iterator[Finding]:
    from forebay.configuration import find_configuration
    from forebay.executor._internal import state_root

    configuration = find_configuration()
    root = state_root(configuration.value("state_dir"))
    there = _nearest(root)
    if not os.access(there, os.W_OK | os.X_OK):
        advice = "set FOREBAY_STATE_DIR to a directory of yours"
        yield Finding("state directory", MISSING, f"{there} is not writable", advice)
        return
    kind = file_system(there, _mounts())
    if kind in NETWORK:
        advice = "set FOREBAY_STATE_DIR to a local disk: SQLite cannot lock files over a network"
        yield Finding("state directory", MISSING, f"{root} is on {kind}", advice)
        return
    about = os.statvfs(there)
    free = about.f_bavail * about.f_frsize
    few = free < FREE_BYTES_MIN
    advice = "make room: ended requests may take 1 GB (executor.retention_bytes)" if few else ""
    value = f"{root}, {kind}, {size(free)} free"
    yield Finding("state directory", NOTE if few else OK, value, advice or None)
    for warning in configuration.warnings:
        yield Finding("configuration", NOTE, warning, "see: forebay config")


def _nearest(path: Path) -> Path:
    """The path, or the directory nearest above it that exists."""
    while not os.path.exists(path):  # also where it may not be looked at
        path = path.parent
    return path


def _mounts() -> str:
    try:
        return Path("/proc/self/mounts").read_text()
    except OSError:
        return ""  # the check of /proc reports it


def file_system(path: Path, mounts: str) -> str:
    """The type of the file system that holds a path, from the text of /proc/self/mounts."""
    target, best, kind = str(path.resolve()), "", "unknown"
    for line in mounts.splitlines():
        _, place, found, *_ = line.split(" ")
        place = place.replace("\\040", " ")
        inside = target == place or target.startswith(f"{place.rstrip('/')}/")
        if inside and len(place) >= len(best):
            best, kind = place, found
    return kind


def _memory() -> Iterator[Finding]:
    pressure = Path("/proc/pressure/memory")
    try:
        pressure.read_text()
    except OSError:
        advice = "boot with psi=1; until then admission goes by measured memory alone"
        yield Finding("memory pressure", NOTE, "the kernel does not tell it", advice)
    else:
        yield Finding("memory pressure", OK, "the kernel tells it")
    group = own_cgroup()
    together = group and group / "memory.oom.group"
    if together and together.exists() and together.read_text().strip() == "1":
        advice = "10 % of its memory stays free; to change that: memory.oom.group=0"
        yield Finding("out of memory", NOTE, "the kernel ends the whole cgroup", advice)
    else:
        yield Finding("out of memory", OK, "the kernel ends one process")


def _terminal() -> Iterator[Finding]:
    from importlib.util import find_spec

    if find_spec("rich") is None:
        yield Finding("rich", NOTE, "not installed", "to have progress bars: pip install rich")
    else:
        yield Finding("rich", OK, "installed")


def _servers() -> Iterator[Finding]:
    from forebay.executor._internal import running

    found = running()
    if not found:
        yield Finding("servers", OK, "none runs; forebay run starts one")
    for one in found:
        yield Finding("server", OK, f"{one.target}, process {one.pid} at {one.socket}")
