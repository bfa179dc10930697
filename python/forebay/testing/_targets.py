"""The processes that chaos may strike, found again for each strike."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

from forebay.testing import _process
from forebay.testing._process import KEEPER, Process

if TYPE_CHECKING:
    from forebay.pool import ServicePool

Owner: TypeAlias = "ServicePool | int"
"""Whose processes: those of a pool of this process, or of all pools of a process, by its number."""


class Targets:
    """A set of processes that changes over time; `a | b` is both.

    Args:
        finds: functions that find processes; those that ended meanwhile are left out.
    """

    def __init__(self, *finds: Callable[[], Iterable[Process | None]]) -> None:
        self._finds = finds

    def __or__(self, other: Targets) -> Targets:
        return Targets(*self._finds, *other._finds)

    def now(self) -> list[Process]:
        """Those that run at this moment, each once, by kind and age.

        Cost: some reads of /proc for each.
        """
        found = {process for find in self._finds for process in find() if process is not None}
        return sorted(found, key=lambda process: (process.kind, process.started, process.pid))


def services(owner: Owner) -> Targets:
    """The services of a pool, or of every pool of a process: Python classes and programs."""

    def find() -> Iterable[Process | None]:
        for child in _children_of_keepers(owner):
            if not _process.is_template(child):
                yield _process.described(child, "service")

    return Targets(find)


def templates(owner: Owner) -> Targets:
    """The templates of a pool, or of every pool of a process."""

    def find() -> Iterable[Process | None]:
        for child in _children_of_keepers(owner):
            if _process.is_template(child):
                yield _process.described(child, "template")

    return Targets(find)


def keeper(owner: Owner) -> Targets:
    """The keeper of a pool, or the keepers of every pool of a process."""

    def find() -> Iterable[Process | None]:
        for pid in _keepers(owner):
            yield _process.described(pid, "keeper")

    return Targets(find)


def processes(kind: str, find: Callable[[], Iterable[int]]) -> Targets:
    """Any processes of yours, such as the clients of a shared pool.

    Args:
        kind: what the log calls them.
        find: returns their process ids; called before each strike, from the storm's thread.
    """
    return Targets(lambda: [_process.described(pid, kind) for pid in find()])


def _keepers(owner: Owner) -> list[int]:
    pid = owner if isinstance(owner, int) else os.getpid()
    found = [child for child in _process.children(pid) if _process.name(child) == KEEPER]
    if isinstance(owner, int):
        return found
    # Other pools of this process have keepers too: the one that has this pool's services is meant.
    own = {_process.parent(service[2]) for service in owner.core.services() if service[2]}
    return [keeper for keeper in found if keeper in own]


def _children_of_keepers(owner: Owner) -> list[int]:
    """Templates and services; a child that still bears its keeper's name is neither yet."""
    found = [child for keeper in _keepers(owner) for child in _process.children(keeper)]
    return [child for child in found if _process.name(child) != KEEPER]
