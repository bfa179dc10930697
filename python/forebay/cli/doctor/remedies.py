"""What to type on this machine: commands that differ by user, by system and by container."""

from __future__ import annotations

import os
import platform
import resource
import shutil
from pathlib import Path

__all__ = [
    "CAP_IPC_LOCK",
    "allow_calls",
    "as_root",
    "has_capability",
    "in_container",
    "install",
    "install_kernel",
    "raise_limit",
    "write_setting",
]

CAP_IPC_LOCK, CAP_SYS_RESOURCE = 14, 24
"""To pin as much memory as one likes; to raise hard limits. See capabilities(7)."""

CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")
INSTALLERS = {"apt-get": "apt-get install", "dnf": "dnf install", "apk": "apk add"}


def in_container() -> bool:
    """Whether Docker or Podman started what this process runs in."""
    return any(map(os.path.exists, CONTAINER_MARKS))


def has_capability(number: int) -> bool:
    """Whether this process has it; root has all of them, but not in a container."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return False
    granted = next((line.split()[1] for line in lines if line.startswith("CapEff:")), "0")
    return bool(int(granted, 16) >> number & 1)


def as_root(command: str) -> str:
    """A command that needs root, as this user types it."""
    return command if os.geteuid() == 0 else f"sudo {command}"


def write_setting(value: str, path: str) -> str:
    """Write a value into a file of the kernel's settings."""
    if os.geteuid() == 0:
        return f"echo {value} > {path}"
    return f"echo {value} | sudo tee {path}"


def install(packages: dict[str, str]) -> str:
    """Install a package of the system, which has a name for each program that installs."""
    found = next((name for name in packages if shutil.which(name)), "apt-get")
    return as_root(f"{INSTALLERS[found]} {packages[found]}")


def raise_limit(option: str, number: int, wanted: int) -> str:
    """Raise a limit: of the shell in which this is typed, of the unit, or of the container.

    Args:
        option: its name as an option of prlimit(1), and as an option of ulimit.
        number: of the resource.
        wanted: the limit that is needed, or `RLIM_INFINITY`.
    """
    long, short = option.split()
    is_infinite = wanted == resource.RLIM_INFINITY
    _, hard = resource.getrlimit(number)
    if hard == resource.RLIM_INFINITY or (not is_infinite and wanted <= hard):
        # Without -S the hard limit falls to it, too.
        return f"ulimit -S -{short} {'unlimited' if is_infinite else wanted}"
    if "INVOCATION_ID" in os.environ:  # a unit of systemd
        return f"Limit{long.upper()}={'infinity' if is_infinite else wanted}"
    if in_container() and not has_capability(CAP_SYS_RESOURCE):
        return f"docker run --ulimit {long}={'-1' if is_infinite else wanted}"
    return as_root(f"prlimit --pid $$ --{long}={'unlimited' if is_infinite else wanted}")


def allow_calls(calls: str) -> str:
    """Have a filter of system calls let some through.

    Args:
        calls: their names, with spaces between.
    """
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "seccompProfile: {type: Unconfined}"
    if "INVOCATION_ID" in os.environ:  # a unit of systemd
        return f"SystemCallFilter={calls}"
    return "docker run --security-opt seccomp=unconfined"


def install_kernel() -> str:
    """Install a newer kernel than that of the system's release."""
    told = _os_release()
    if told.get("ID") == "ubuntu":
        return as_root(f"apt-get install linux-generic-hwe-{told.get('VERSION_ID', '24.04')}")
    if told.get("ID") == "debian" and "VERSION_CODENAME" in told:
        image = "linux-image-" + {"x86_64": "amd64", "aarch64": "arm64"}.get(
            platform.machine(), platform.machine()
        )
        return as_root(f"apt-get install -t {told['VERSION_CODENAME']}-backports {image}")
    return install({"dnf": "kernel", "apk": "linux-lts", "apt-get": "linux-image-generic"})


def _os_release() -> dict[str, str]:
    try:
        lines = Path("/etc/os-release").read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines)
    return {name: value.strip('"') for name, _, value in pairs}
