"""What a program has or leaves: processes, descriptors, threads, files, shared memory."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import secrets
import socket
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from forebay._core import Connection, sweep_lent
from forebay.errors import DeadlineError
from forebay.rpc._internal import reader
from forebay.testing import _process

MARK = "FOREBAY_TESTING_MARK"
"""Variable that identifies processes which have lost their parent."""

SHARED_MEMORY = Path("/dev/shm")
NAMED = re.compile(r"\.?forebay(?!-keeper-\d+-\d+$)")
MADE_BY = re.compile(r"\.?forebay-keeper-(\d+)-executor-")
POLL_S = 0.01

Inventory = dict[str, str]
"""What exists, by what and where, with a description."""


@contextlib.contextmanager
def nothing_left(
    *, folders: Iterable[str | os.PathLike[str]] = (), timeout: float = 5.0
) -> Iterator[None]:
    """Fail when more exists after the `with` block than before it.

    Counted are this process's descriptors (sockets among them), threads and mappings of shared
    memory; the running processes below it, and those that were started in the block and have lost
    their parent since; and files.

    Args:
        folders: where nothing new may stay, whatever its name. In the temporary directory and in
            /dev/shm it is what carries Forebay's name, but for what belongs to another user (root
            counts all of it), and the directories of other programs' executors, and of keepers: a
            keeper that lives is counted as a process, and the directory of one that was killed goes
            when the next one starts.
        timeout: seconds that something may take to go: a process ends a moment after its signal.

    Raises:
        AssertionError: something is left; the message names each.

    While the block runs the variable FOREBAY_TESTING_MARK is set; not for two threads at once.
    Blocks may be nested, in one process or in a program that was started in the block.
    """
    _make_what_stays()
    mark, inherited = secrets.token_hex(8), os.environ.get(MARK)
    paths = [Path(folder) for folder in folders]
    gc.collect()  # what goes by itself during the block would make others seem new
    before = _inventory(mark, paths)
    os.environ[MARK] = mark if inherited is None else f"{inherited},{mark}"
    try:
        yield
    finally:
        os.environ.pop(MARK)
        if inherited is not None:
            os.environ[MARK] = inherited
    left = _left(before, mark, paths, timeout)
    if left:
        listing = "\n  ".join(f"{what}: {description}" for what, description in left.items())
        raise AssertionError(f"left {timeout:g} s after the block:\n  {listing}")


def _make_what_stays() -> None:
    """Make what a process makes once and keeps, so that it is not taken for left.

    That is the reader thread of submitted calls, and the descriptor on which this thread sleeps
    while it waits for an answer.
    """
    reader()
    ours, theirs = socket.socketpair()
    with theirs:
        connection = Connection(ours.detach())
        call = connection.begin(0, b"", None, 0)
        with contextlib.suppress(DeadlineError):
            connection.settle(call, 0, 0.001)
        connection.close()


def _left(before: Inventory, mark: str, paths: list[Path], timeout: float) -> Inventory:
    deadline = time.monotonic() + timeout
    while True:
        gc.collect()  # objects in a reference cycle close only now
        sweep_lent()
        now = _inventory(mark, paths)
        left = {what: now[what] for what in now if now[what] != before.get(what)}
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(POLL_S)


def _inventory(mark: str, paths: list[Path]) -> Inventory:
    return {
        **_descriptors(),
        **_threads(),
        **_mappings(),
        **_processes(mark),
        **_files(paths),
    }


def _descriptors() -> Inventory:
    found = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            found[f"descriptor {number}"] = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:  # the one that the listing used
            continue
    return found


def _threads() -> Inventory:
    return {
        f"thread {task}": _process.text(f"/proc/self/task/{task}/comm").strip()
        for task in os.listdir("/proc/self/task")
    }


def _mappings() -> Inventory:
    """Mapped memory files. Their addresses change, so equal ones are numbered."""
    found: Inventory = {}
    counts: dict[str, int] = {}
    for line in _process.text("/proc/self/maps").splitlines():
        target = line.partition("/")[2]
        if target.startswith(("memfd:", "dev/shm/")):
            counts[target] = counts.get(target, 0) + 1
            found[f"mapping {counts[target]} of /{target}"] = "mapped"
    return found


def _processes(mark: str) -> Inventory:
    pids = set(_process.descendants(os.getpid()))
    for entry in os.listdir("/proc"):
        if entry.isdigit() and mark in _process.text(f"/proc/{entry}/environ"):
            pids.add(int(entry))
    found = {}
    for pid in pids - {os.getpid()}:
        process = _process.described(pid, _process.name(pid))
        if process is not None:
            found[f"process {pid}"] = f"{process.kind}, started at tick {process.started}"
    return found


def _files(paths: list[Path]) -> Inventory:
    found = [path for folder in paths for path in _listed(folder)]
    for folder in (Path(tempfile.gettempdir()), SHARED_MEMORY):
        named = [path for path in _listed(folder) if NAMED.match(path.name)]
        own = [path for path in named if not _is_another_programs(path.name)]
        found += [path for path in own if _may_be_ours(path)]
    return {f"file {path}": "new" for path in found}


def _may_be_ours(path: Path) -> bool:
    """Whether this user may have made it; root may have made anybody's."""
    try:
        return os.geteuid() in (0, path.lstat().st_uid)
    except FileNotFoundError:
        return False


def _is_another_programs(name: str) -> bool:
    """Whether a live process of another program has a directory of this name."""
    made = MADE_BY.match(name)
    if made is None or not os.path.exists(f"/proc/{made[1]}"):
        return False
    return int(made[1]) not in {os.getpid(), *_process.descendants(os.getpid())}


def _listed(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []
