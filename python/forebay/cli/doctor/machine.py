"""Checks of the kernel, of its limits for this process, and of the places that are written."""

from __future__ import annotations

import os
import platform
import resource
import socket
import tempfile
from collections.abc import Callable, Iterator

from forebay._units import size
from forebay.cli.cgroup import own_cgroup
from forebay.cli.doctor.finding import Finding, missing, note, ok
from forebay.cli.doctor.remedies import (
    allow_calls,
    as_root,
    in_container,
    install_kernel,
    raise_limit,
)

KERNEL_MIN = (5, 15)
DESCRIPTORS_MIN = 1024
SHARED_MEMORY_MIN = 64 * 2**20
CHECKPOINT_RESTORE = "/proc/sys/kernel/ns_last_pid"


def kernel_findings() -> Iterator[Finding]:
    """Check the kernel's release, the processor, and what the pool asks of them."""
    release = platform.release()
    numbers = tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdigit())
    value = f"{platform.system()} {release}"
    if numbers < KERNEL_MIN:
        wanted = ".".join(map(str, KERNEL_MIN))
        yield missing("kernel", value, f"use Linux {wanted} or later", install_kernel())
    else:
        yield ok("kernel", value)
    machine = platform.machine()
    if machine in ("x86_64", "aarch64"):
        yield ok("machine", machine)
    else:
        yield note("machine", machine, "not tested by us; in a clone of the sources", "make test")
    yield from _features()


def _features() -> Iterator[Finding]:
    """Kernel features that the pool uses; each is tried."""
    tries: tuple[tuple[str, Callable[[], None], str], ...] = (
        ("pidfd", _try_pidfd, "pidfd_open"),
        ("memfd", _try_memfd, "memfd_create"),
        ("descriptor passing", _try_passing, "socketpair sendmsg recvmsg"),
    )
    for name, attempt, calls in tries:
        try:
            attempt()
        except OSError as error:
            why = f"have the filter of system calls allow {calls}"
            yield missing(name, str(error), why, allow_calls(calls))
        else:
            yield ok(name, "works")
    if os.path.exists(CHECKPOINT_RESTORE):  # see docs/decisions.md, 1
        yield ok("checkpoint/restore", "yes")
    else:
        why = "a fork takes one system call more; to spare it, build the kernel with"
        yield note("checkpoint/restore", "no", why, "CONFIG_CHECKPOINT_RESTORE=y")


def _try_pidfd() -> None:
    os.close(os.pidfd_open(os.getpid()))


def _try_memfd() -> None:
    os.close(os.memfd_create("forebay-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))


def _try_passing() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        socket.send_fds(ours, [b"."], [ours.fileno()])
        _, descriptors, _, _ = socket.recv_fds(theirs, 1, 1)
        for descriptor in descriptors:
            os.close(descriptor)


def proc_findings() -> Iterator[Finding]:
    """Check /proc: threads are counted there before a fork, and memory is measured there."""
    if os.path.isdir("/proc/self/task"):
        yield ok("/proc", "mounted")
    else:
        yield missing("/proc", "none", "mount it", as_root("mount -t proc proc /proc"))


def cgroup_findings() -> Iterator[Finding]:
    """Check the control group: services get groups below it, and limits are those of it."""
    group = own_cgroup()
    if group is None:
        why = "to limit the memory of each service, boot with"
        setting = "systemd.unified_cgroup_hierarchy=1"
        yield note("cgroup", "no unified hierarchy", why, setting)
        return
    if os.access(group / "cgroup.procs", os.W_OK) and os.access(group, os.W_OK):
        yield ok("cgroup", f"{group}, writable")
    else:
        why = "services are ended by their process groups; for a group each, in the unit of systemd"
        yield note("cgroup", f"{group}, not writable", why, "Delegate=yes")
    for name in ("cpu.max", "memory.max"):
        limit = group / name
        if limit.exists():
            yield ok(name, limit.read_text().strip())


def limit_findings() -> Iterator[Finding]:
    """Check the limits of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    value = f"{_limit(soft)} (hard {_limit(hard)})"
    if soft != resource.RLIM_INFINITY and soft < DESCRIPTORS_MIN:
        to_type = raise_limit("nofile n", resource.RLIMIT_NOFILE, DESCRIPTORS_MIN)
        yield note("open files", value, "each service takes some; raise it", to_type)
    else:
        yield ok("open files", value)
    for name, number in (
        ("processes", resource.RLIMIT_NPROC),
        ("locked memory", resource.RLIMIT_MEMLOCK),
        ("core size", resource.RLIMIT_CORE),
    ):
        soft, hard = resource.getrlimit(number)
        yield ok(name, f"{_limit(soft)} (hard {_limit(hard)})")
    yield ok("cores", f"{len(os.sched_getaffinity(0))} of {os.cpu_count()}")


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


def place_findings() -> Iterator[Finding]:
    """Check shared memory and the directories for temporary files and sockets."""
    yield _shared_memory()
    yield _temporary()
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and not os.access(runtime, os.W_OK | os.X_OK):
        value = f"{runtime} is not writable"
        yield missing("runtime directory", value, "use /tmp", "unset XDG_RUNTIME_DIR")
    else:
        yield ok("runtime directory", runtime or "none; /tmp is used")


def _shared_memory() -> Finding:
    why = "Forebay needs none; for other libraries"
    try:
        shared = os.statvfs("/dev/shm")
    except OSError as error:
        to_type = as_root("mount -t tmpfs -o nosuid,nodev tmpfs /dev/shm")
        return note("/dev/shm", str(error), why, to_type)
    total = shared.f_blocks * shared.f_frsize
    value = f"{size(shared.f_bavail * shared.f_frsize)} free of {size(total)}"
    if total >= SHARED_MEMORY_MIN:
        return ok("/dev/shm", value)
    larger = as_root("mount -o remount,size=1g /dev/shm")
    return note("/dev/shm", value, why, "docker run --shm-size=1g" if in_container() else larger)


def _temporary() -> Finding:
    elsewhere = 'export TMPDIR="$HOME"'
    try:
        directory = tempfile.gettempdir()
    except FileNotFoundError as error:
        return missing("temporary files", str(error), "use another directory", elsewhere)
    free = os.statvfs(directory)
    value = f"{directory}, {size(free.f_bavail * free.f_frsize)} free"
    if os.access(directory, os.W_OK | os.X_OK):
        return ok("temporary files", value)
    return missing("temporary files", f"{value}, not writable", "use another", elsewhere)
