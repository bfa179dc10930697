"""Checks of what moves blocks and tensors: io_uring, registered memory, RDMA devices."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from forebay._units import size
from forebay.cli.doctor.finding import Finding, missing, note, ok
from forebay.cli.doctor.pages import CHUNK_BYTES
from forebay.cli.doctor.remedies import (
    CAP_IPC_LOCK,
    allow_calls,
    as_root,
    has_capability,
    install,
    raise_limit,
)

if TYPE_CHECKING:
    from forebay.blockio import Queue
    from forebay.configuration import Configuration

DISABLED = Path("/proc/sys/kernel/io_uring_disabled")
URING = "io_uring_setup io_uring_enter io_uring_register"
ADAPTERS = Path("/sys/class/infiniband")
DEVICE_FILES = Path("/dev/infiniband")

LIBRARY = {"apt-get": "libibverbs1", "dnf": "libibverbs", "apk": "libibverbs"}
PROVIDERS = {"apt-get": "ibverbs-providers", "dnf": "libibverbs", "apk": "rdma-core"}


def block_findings() -> Iterator[Finding]:
    """Which engine carries out block operations, and why; chosen as for a program's first queue."""
    from forebay.blockio import Queue
    from forebay.configuration import find_configuration

    asked = find_configuration().blockio.engine
    with Queue() as queue:
        engine, reason, refused = queue.engine, queue.reason, _unregistered(queue)
    if engine == "ring":
        yield ok("block I/O", f"{engine}: {reason}")
    else:
        why = "programs run, at about 0.7 of the speed; to have io_uring"
        yield note("block I/O", f"{engine}: {reason}", why, _to_have_rings(asked, reason))
    if refused is not None:
        why = "programs run, with a tenth more of processor time; to register it"
        value = f"none: {refused.partition(';')[0]}"
        yield note("registered memory", value, why, _to_register(refused))


def _to_have_rings(asked: str, reason: str) -> str:
    if asked == "threads":
        return "export FOREBAY_BLOCKIO_ENGINE=auto"
    if DISABLED.exists() and DISABLED.read_text().strip() != "0":
        return as_root("sysctl kernel.io_uring_disabled=0")
    if "memlock" in reason:
        return _pin_more()
    return allow_calls(URING)


def _to_register(refused: str) -> str:
    return _pin_more() if "ulimit -l" in refused else allow_calls("io_uring_register")


def _pin_more() -> str:
    return raise_limit("memlock l", resource.RLIMIT_MEMLOCK, resource.RLIM_INFINITY)


def _unregistered(queue: Queue) -> str | None:
    """Why an arena's memory is not registered; tried if a chunk is above the memlock limit."""
    from forebay.memory import Arena

    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if queue.engine == "ring" and 0 <= limit < CHUNK_BYTES:  # RLIM_INFINITY is below 0
        with Arena(limit + 2 * resource.getpagesize()) as arena:
            queue.attach(arena)
            arena.allocate(1)
    refused: str | None = queue.stats()["unregistered"]
    return refused


def rdma_findings() -> Iterator[Finding]:
    """RDMA devices, by which tensors are sent between machines; nothing needs one."""
    from forebay import _core
    from forebay.configuration import find_configuration

    configuration = find_configuration()
    found = _core.rdma_devices()
    names = sorted(path.name for path in ADAPTERS.iterdir()) if ADAPTERS.is_dir() else []
    if isinstance(found, str):
        yield _none(found, names, configuration)
        return
    for device, port, address, has_windows in found:
        value = f"device {device}, port {port}, address {address}"
        yield _usable(value, configuration, has_windows=has_windows)
    for name in names:
        if name not in {device for device, *_ in found}:
            value = f"device {name} has no active port, or no address"
            yield note("RDMA verbs", value, "another one is used; to use it", _activate(name))


def _none(reason: str, names: list[str], configuration: Configuration) -> Finding:
    """No device is usable: that is all right where the machine has none and none is asked for."""
    name, value = "RDMA verbs", f"none: {reason}"
    if configuration.tensor.fabric == "verbs":
        why = "tensor.fabric is verbs; to send tensors over TCP"
        return missing(name, value, why, "export FOREBAY_TENSOR_FABRIC=auto")
    if not names:
        return ok(name, f"{value}; tensors go over TCP between machines")
    why = "tensors go over TCP between machines; to have verbs"
    return note(name, value, why, _to_have_verbs(reason, names[0]))


def _to_have_verbs(reason: str, device: str) -> str:
    if "libibverbs1" in reason:
        return install(LIBRARY)
    if "ibverbs-providers" in reason:
        return install(PROVIDERS)
    if "cannot be opened" in reason:
        if not DEVICE_FILES.is_dir():
            return as_root("modprobe ib_uverbs")
        return as_root(f"chmod a+rw {DEVICE_FILES}/uverbs*")
    return _activate(device)


def _activate(device: str) -> str:
    """Bring up the network interface of a device, or of what one made of software lies on."""
    folder = ADAPTERS / device
    try:
        interface = (folder / "parent").read_text().strip()  # Soft-RoCE and siw have it
    except OSError:
        interface = next((path.name for path in (folder / "device/net").glob("*")), "INTERFACE")
    return as_root(f"ip link set dev {interface} up")


def _usable(value: str, configuration: Configuration, *, has_windows: bool) -> Finding:
    name = "RDMA verbs"
    if configuration.tensor.fabric == "stream":
        return ok(name, f"{value}; not used, since tensor.fabric is stream")
    if not has_windows:
        why = "tensors need them, and go over TCP here; to say so"
        setting = "export FOREBAY_TENSOR_FABRIC=stream"
        return note(name, f"{value}; it has no windows of type 2B", why, setting)
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if 0 <= limit < CHUNK_BYTES and not has_capability(CAP_IPC_LOCK):
        value = f"{value}; {size(limit)} may be pinned, an arena's chunk has {size(CHUNK_BYTES)}"
        return note(name, value, "what is above it goes over TCP; to pin more", _pin_more())
    return ok(name, value)
