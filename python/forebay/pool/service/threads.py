"""Whether a process can be forked: a fork copies one thread, and every lock as it is."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from forebay.errors import ConfigError

TASKS = "/proc/self/task"

ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Set to 1 in a template: these libraries start more at import."""

NO_PURGER = "background_thread:false"
"""Of jemalloc: threads that allocate return freed memory to the system, not a thread for that."""

ALLOCATORS = ("JE_ARROW_MALLOC_CONF", "_RJEM_MALLOC_CONF")
"""Settings of the jemalloc in pyarrow, which pandas and scikit-learn import, and in polars."""

NO_TELEMETRY = "ORT_DISABLE_TELEMETRY"
"""If it is 1, onnxruntime (since 1.29) starts no thread that sends data about its use."""

ASLEEP: Mapping[str, str] = {
    "polars-ooc-clea": "waits on a channel for files to remove, which only queries that spill to"
    " disk send it (crates/polars-ooc/src/cleaner.rs of polars, since 1.38)",
}
"""Threads of libraries that a fork does not need because they only sleep, with the reason."""

SETTLE_S = 1.0
"""Longest wait for a new thread to name itself and to sleep."""


def template_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables for a template so that imports start no threads, given the user's environment."""
    variables = dict.fromkeys(ONE_THREAD, "1")
    for name in ALLOCATORS:
        theirs = environment.get(name, "")
        if "background_thread" in theirs:
            variables[name] = theirs
        else:
            variables[name] = f"{theirs},{NO_PURGER}" if theirs else NO_PURGER
    variables[NO_TELEMETRY] = environment.get(NO_TELEMETRY, "1")
    return variables


def extra_threads() -> dict[int, str]:
    """The threads beside the main one that a fork would need: number and name.

    The name is Python's where it knows them.

    Raises:
        ConfigError: there is no /proc.
    """
    try:
        tasks = sorted(map(int, os.listdir(TASKS)))[1:]
    except OSError as error:
        raise ConfigError(
            f"the threads of a process cannot be counted before it is forked: {error.strerror}: "
            f"{TASKS}; mount it: mount -t proc proc /proc"
        ) from None
    if not tasks:
        return {}  # without importing threading, whose at-fork handler every fork would pay for
    import threading

    python = {thread.native_id: thread.name for thread in threading.enumerate()}
    native = {task: _native_name(task) for task in tasks if task not in python}
    return {
        task: python.get(task) or native[task]
        for task in tasks
        if task in python or not (native[task] in ASLEEP and _sleeps(task))
    }


def _native_name(task: int) -> str:
    """The name of a thread; waits while it still has the name of its process."""
    deadline = time.monotonic() + SETTLE_S / 10
    while True:
        name = _read(task, "comm").strip()
        if name != _read(os.getpid(), "comm").strip() or time.monotonic() > deadline:
            return name
        time.sleep(0.001)


def _sleeps(task: int) -> bool:
    """Whether a thread waits and so holds no lock that a fork would copy."""
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        state = _read(task, "stat").rpartition(")")[2].split()
        if not state or state[0] == "S":
            return True
        time.sleep(0.001)
    return False


def _read(task: int, what: str) -> str:
    """A file of the kernel about a thread; empty for a thread that has ended."""
    try:
        with open(f"{TASKS}/{task}/{what}") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return ""
