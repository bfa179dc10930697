"""The checks of `forebay doctor` for servers of requests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from forebay._units import size
from forebay.cli.cgroup import own_cgroup
from forebay.cli.doctor.finding import Finding, missing, note, ok
from forebay.cli.doctor.remedies import write_setting

NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "ceph", "lustre", "glusterfs"}
)
"""File systems on which SQLite's locks and its shared memory cannot be relied upon."""


def server_findings() -> list[Finding]:
    """Check what servers of requests use, without starting one."""
    from forebay.errors import ConfigError

    try:
        return [*_state(), *_memory(), *_servers()]
    except ConfigError as error:
        why = "change the setting that it names"
        return [missing("configuration", str(error), why, "forebay config")]


def _state() -> Iterator[Finding]:
    from forebay.configuration import find_configuration
    from forebay.executor._internal import state_root

    configuration = find_configuration()
    root = state_root(configuration.value("state_dir"))
    yield _state_directory(root, configuration.executor.retention_bytes)
    for warning in configuration.warnings:
        yield note("configuration", warning, "see every setting", "forebay config")


def _state_directory(root: Path, retention_bytes: int) -> Finding:
    name, there = "state directory", _nearest(root)
    elsewhere = f"export FOREBAY_STATE_DIR=/var/tmp/forebay-{os.geteuid()}"
    if not os.access(there, os.W_OK | os.X_OK):
        return missing(name, f"{there} is not writable", "use one of yours", elsewhere)
    kind = file_system(there, _mounts())
    if kind in NETWORK:
        why = "SQLite cannot lock files over a network; use a local disk"
        return missing(name, f"{root} is on {kind}", why, elsewhere)
    about = os.statvfs(there)
    free = about.f_bavail * about.f_frsize
    value = f"{root}, {kind}, {size(free)} free"
    if free >= retention_bytes:
        return ok(name, value)
    why = f"ended requests may take {size(retention_bytes)}; to keep less of them"
    less = f"export FOREBAY_EXECUTOR_RETENTION_BYTES={free // 2_000_000}MB"
    return note(name, value, why, less)


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
        why = "admission goes by measured memory alone; to have the pressure told, boot with"
        yield note("memory pressure", "the kernel does not tell it", why, "psi=1")
    else:
        yield ok("memory pressure", "the kernel tells it")
    group = own_cgroup()
    together = group and group / "memory.oom.group"
    if together and together.exists() and together.read_text().strip() == "1":
        why = "10 % of its memory stays free for that; to have it end one process"
        value = "the kernel ends the whole cgroup"
        yield note("out of memory", value, why, write_setting("0", str(together)))
    else:
        yield ok("out of memory", "the kernel ends one process")


def _servers() -> Iterator[Finding]:
    from forebay.executor._internal import running

    found = running()
    if not found:
        yield ok("servers", "none runs; forebay run starts one")
    for one in found:
        yield ok("server", f"{one.target}, process {one.pid} at {one.socket}")
