"""The checks of `forebay doctor`; each later system adds its own.

A check only reads: it starts no process and leaves nothing behind.
"""

from __future__ import annotations

import os
import platform
import resource
import socket
import tempfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from forebay.cli.cgroup import own_cgroup
from forebay.cli.doctor_server import server_findings
from forebay.cli.finding import MISSING, NOTE, OK, Finding

if TYPE_CHECKING:
    from forebay.blockio import Queue

KERNEL_MIN = (5, 15)
DESCRIPTORS_MIN = 1024
SHARED_MEMORY_MIN = 64 * 2**20
ARENA_CHUNK_BYTES = 64 * 2**20
"""The size of a chunk, by which an arena grows, and which is registered with rings as a whole."""


def findings(path: str | None) -> list[Finding]:
    """Run every check; `path` is the socket of the shared pool, or None for the default one."""
    checks = (
        _versions,
        _kernel,
        _proc,
        _features,
        _cgroup,
        _limits,
        _memory,
        _directories,
        _blockio,
        _rdma,
    )
    found = [finding for check in checks for finding in _looked_at(check)]
    return [*found, _shared_pool(path), *server_findings()]


def _looked_at(check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """The findings of a check; if the system refuses it something, a finding that says so."""
    try:
        yield from check()
    except OSError as error:
        yield Finding(check.__name__.strip("_").replace("_", " "), MISSING, str(error))


def _versions() -> Iterator[Finding]:
    from importlib.metadata import PackageNotFoundError, version

    yield Finding("python", OK, f"{platform.python_version()} ({platform.python_implementation()})")
    try:
        from forebay import _core
    except ImportError as error:
        yield Finding("extension", MISSING, str(error), "install again: pip install forebay")
    else:
        yield Finding("extension", OK, _core.__file__ or "built in")
    for package, needed in (("forebay", True), ("msgspec", True), ("numpy", False)):
        try:
            yield Finding(package, OK, version(package))
        except PackageNotFoundError:
            advice = f"pip install {package}"
            yield Finding(package, MISSING if needed else NOTE, "not installed", advice)


def _kernel() -> Iterator[Finding]:
    release = platform.release()
    numbers = tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdigit())
    old = numbers < KERNEL_MIN
    wanted = ".".join(map(str, KERNEL_MIN))
    advice = f"use Linux {wanted} or later" if old else None
    yield Finding("kernel", MISSING if old else OK, f"{platform.system()} {release}", advice)
    machine = platform.machine()
    known = machine in ("x86_64", "aarch64")
    yield Finding("machine", OK if known else NOTE, machine, None if known else "not tested here")


def _proc() -> Iterator[Finding]:
    """/proc: threads are counted there before a fork, and memory is measured there."""
    there = os.path.isdir("/proc/self/task")
    advice = None if there else "mount it: mount -t proc proc /proc"
    yield Finding("/proc", OK if there else MISSING, "mounted" if there else "none", advice)


def _features() -> Iterator[Finding]:
    """Kernel features that the pool uses; each is tried."""
    tries: tuple[tuple[str, Callable[[], None], str], ...] = (
        ("pidfd", _try_pidfd, "allow pidfd_open in the container's seccomp profile"),
        ("memfd", _try_memfd, "allow memfd_create in the container's seccomp profile"),
        ("descriptor passing", _try_passing, "allow Unix sockets between your own processes"),
    )
    for name, attempt, advice in tries:
        try:
            attempt()
        except OSError as error:
            yield Finding(name, MISSING, str(error), advice)
        else:
            yield Finding(name, OK, "works")
    # Without it a fork needs one system call more; see docs/decisions.md, 1.
    restore = os.path.exists("/proc/sys/kernel/ns_last_pid")
    yield Finding("checkpoint/restore", OK if restore else NOTE, "yes" if restore else "no")


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


def _cgroup() -> Iterator[Finding]:
    group = own_cgroup()
    if group is None:
        yield Finding("cgroup", NOTE, "no unified hierarchy", "boot with cgroup v2 to limit memory")
        return
    writable = os.access(group / "cgroup.procs", os.W_OK) and os.access(group, os.W_OK)
    value = f"{group}, {'writable' if writable else 'not writable'}"
    advice = "services are ended by their process groups; to have cgroups: Delegate=yes (systemd)"
    yield Finding("cgroup", OK if writable else NOTE, value, None if writable else advice)
    for name in ("cpu.max", "memory.max"):
        limit = group / name
        if limit.exists():
            yield Finding(name, OK, limit.read_text().strip())


def _limits() -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = soft != resource.RLIM_INFINITY and soft < DESCRIPTORS_MIN
    advice = f"raise it: ulimit -n {DESCRIPTORS_MIN}" if few else None
    yield Finding(
        "open files", NOTE if few else OK, f"{_limit(soft)} (hard {_limit(hard)})", advice
    )
    for name, number in (
        ("processes", resource.RLIMIT_NPROC),
        ("locked memory", resource.RLIMIT_MEMLOCK),
        ("core size", resource.RLIMIT_CORE),
    ):
        soft, hard = resource.getrlimit(number)
        yield Finding(name, OK, f"{_limit(soft)} (hard {_limit(hard)})")
    yield Finding("cores", OK, f"{len(os.sched_getaffinity(0))} of {os.cpu_count()}")


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


def _memory() -> Iterator[Finding]:
    try:
        shared = os.statvfs("/dev/shm")
    except OSError as error:
        yield Finding("/dev/shm", NOTE, str(error), "Forebay needs none, other libraries may")
        return
    size = shared.f_blocks * shared.f_frsize
    small = size < SHARED_MEMORY_MIN
    advice = "Forebay needs none; for other libraries: docker run --shm-size=1g" if small else None
    free = shared.f_bavail * shared.f_frsize
    value = f"{_megabytes(free)} free of {_megabytes(size)}"
    yield Finding("/dev/shm", NOTE if small else OK, value, advice)


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.0f} MB"


def _directories() -> Iterator[Finding]:
    directory = tempfile.gettempdir()
    writable = os.access(directory, os.W_OK | os.X_OK)
    free = os.statvfs(directory)
    value = f"{directory}, {_megabytes(free.f_bavail * free.f_frsize)} free"
    advice = None if writable else "set TMPDIR to a directory that you may write"
    yield Finding("temporary files", OK if writable else MISSING, value, advice)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and not os.access(runtime, os.W_OK | os.X_OK):
        advice = "unset XDG_RUNTIME_DIR, or make the directory yours"
        yield Finding("runtime directory", MISSING, f"{runtime} is not writable", advice)
    else:
        yield Finding("runtime directory", OK, runtime or "none; /tmp is used")


def _blockio() -> Iterator[Finding]:
    """Which engine carries out block operations, and why; chosen as for a program's first queue."""
    from forebay.blockio import Queue
    from forebay.errors import ConfigError

    try:
        with Queue() as queue:
            engine, reason, refused = queue.engine, queue.reason, _unregistered(queue)
    except ConfigError as error:
        yield Finding("block I/O", MISSING, str(error), "change the setting that it names")
        return
    advice = None if engine == "ring" else "programs run, at about 0.7 of the speed"
    yield Finding("block I/O", OK if engine == "ring" else NOTE, f"{engine}: {reason}", advice)
    if refused is not None:
        advice = "raise it: ulimit -l; programs run, with a tenth more of processor time"
        yield Finding("registered memory", NOTE, f"none: {refused}", advice)


def _unregistered(queue: Queue) -> str | None:
    """Why an arena's memory is not registered; tried if a chunk is above the memlock limit."""
    from forebay.memory import Arena

    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if queue.engine == "ring" and 0 <= limit < ARENA_CHUNK_BYTES:  # RLIM_INFINITY is below 0
        with Arena(limit + 2 * resource.getpagesize()) as arena:
            queue.attach(arena)
            arena.allocate(1)
    refused: str | None = queue.stats()["unregistered"]
    return refused


def _rdma() -> Iterator[Finding]:
    """RDMA devices, by which tensors can be sent between machines; nothing needs one."""
    try:
        from forebay import _core
    except ImportError:
        return  # another finding reports it
    found = _core.rdma_devices()
    if isinstance(found, str):
        yield Finding("RDMA verbs", NOTE, f"none: {found}")
        return
    for device, port, address, has_windows in found:
        value = f"device {device}, port {port}, address {address}"
        if has_windows:
            yield Finding("RDMA verbs", OK, value)
        else:
            value += "; it has no windows of type 2B"
            yield Finding("RDMA verbs", NOTE, value, "tensors need them, and go over TCP here")


def _shared_pool(path: str | None) -> Finding:
    from forebay.errors import Error
    from forebay.pool import SharedPool

    with SharedPool(path) as pool:
        try:
            stats = pool.stats()
        except Error as error:
            return Finding("shared pool", NOTE, f"none at {pool.path}", str(error))
        value = f"process {stats['pid']} at {pool.path}, {stats['live']} services"
    return Finding("shared pool", OK, value)
