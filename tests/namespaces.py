"""Processes in a PID namespace of their own, as in a container."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

__all__ = ["needs_namespace", "unshared"]


def _command() -> list[str]:
    alone = ["unshare", "--pid", "--fork", "--kill-child"]
    return alone if os.geteuid() == 0 else [*alone, "--user", "--map-current-user"]


def unshared(command: list[str], *, proc: bool = False) -> list[str]:
    """The same command, whose process sees none outside of its namespace, and is 1 in it.

    With `proc` it has a /proc of its own, as in a container.
    """
    mounts = ["--mount-proc"] if proc else []
    return [*_command(), *mounts, *command]


def _refused() -> bool:
    if os.geteuid() == 0:
        return False
    switch = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
    many = Path("/proc/sys/user/max_user_namespaces").read_text().strip()
    return many == "0" or (switch.exists() and switch.read_text().strip() == "1")


needs_namespace = pytest.mark.skipif(_refused(), reason="this user may make no PID namespace")
