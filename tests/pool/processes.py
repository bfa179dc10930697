"""What the tests of the pool see of processes: who lives, whose child it is, what it can open."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def parent(pid: int) -> int:
    """The parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def children(pid: int) -> list[int]:
    """The living children of a process."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [child for child in map(int, listed.split()) if alive(child)]


def descendants(pid: int) -> list[int]:
    """All living processes below one."""
    found = []
    for child in children(pid):
        found += [child, *descendants(child)]
    return found


def template_of(service: int) -> int:
    """The template of a service: the other child of their keeper that carries its name."""
    for sibling in children(parent(service)):
        if Path(f"/proc/{sibling}/comm").read_text() == "fb template\n":
            return sibling
    raise LookupError(f"service {service} has no template beside it")


def eventually(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Whether something becomes true in time; for what nothing announces (the process table)."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)  # rather than compete with what is awaited
    return True


def is_free(descriptor: int) -> bool:
    """Whether no open file has this number."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_GETFD)
    except OSError:
        return True
    return False


@contextlib.contextmanager
def open_files_limited(room: int | None = None) -> Iterator[Callable[[int], None]]:
    """This process can open only so many more files; what it yields sets another such number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def limit(room: int) -> None:
        free = filter(is_free, range(hard))
        above = next(itertools.islice(free, room, None), None)
        if above is None:
            pytest.skip(f"no {room} files may be opened: the hard limit is {hard}; ulimit -Hn")
        resource.setrlimit(resource.RLIMIT_NOFILE, (above, hard))

    try:
        if room is not None:
            limit(room)
        yield limit
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
