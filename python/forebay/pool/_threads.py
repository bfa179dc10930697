"""Whether a process can be forked: a fork copies one thread, and every lock as it is."""

from __future__ import annotations

import os

from forebay.errors import ConfigError


def extra_threads() -> list[str]:
    """Names of the threads beside the main one, by Python's name where it knows them.

    Raises:
        ConfigError: there is no /proc.
    """
    try:
        tasks = sorted(map(int, os.listdir("/proc/self/task")))[1:]
    except OSError as error:
        raise ConfigError(
            f"the threads of a process cannot be counted before it is forked: {error.strerror}: "
            "/proc/self/task; mount it: mount -t proc proc /proc"
        ) from None
    if not tasks:
        return []  # without importing threading, whose at-fork handler every fork would pay for
    import threading

    known = {thread.native_id: thread.name for thread in threading.enumerate()}
    names = []
    for task in tasks:
        with open(f"/proc/self/task/{task}/comm") as file:
            names.append(known.get(task) or file.read().strip())
    return names
