"""Which definition of a class that goes by value is the newest, and the end of the others."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

from forebay.pool.lend.wait import THREADS

if TYPE_CHECKING:
    from forebay.pool.lend.kind import Kind
    from forebay.pool.lend.pool import ServicePool
    from forebay.pool.service.by_value import Value

START, WAIT = 1, 2
"""Answers of the core, as in `acquire`."""


class Definitions:
    """Ends services whose class, or a variable that it uses, a cell has defined again.

    Idle ones are ended by the next acquire of the class, leased ones when their lease ends: their
    kinds are marked as replaced. A definition counts if the main module still has it under its
    name; a class that was made in a function has no name there, and its services stay.

    Thread-safe.
    """

    __slots__ = ("_kinds", "_lock", "_pool")

    def __init__(self, pool: ServicePool) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._kinds: dict[str, dict[bytes, list[Kind]]] = {}
        """By the name of the class and the bytes of its definition; one kind for each spec."""

    def use(self, kind: Kind, value: Value) -> None:
        """Note that services of this definition are wanted from now on."""
        name: str = value.what.__qualname__
        if vars(sys.modules["__main__"]).get(name) is not value.what:
            return
        with self._lock:
            definitions = self._kinds.setdefault(name, {})
            kinds = definitions.setdefault(value.data, [])
            if kind not in kinds:
                kinds.append(kind)
            if kind.is_replaced:
                kind.is_replaced = False  # a variable has its earlier value again
            if len(definitions) > 1:
                self._end_others(definitions, value.data)

    def _end_others(self, definitions: dict[bytes, list[Kind]], newest: bytes) -> None:
        """End the idle services of older definitions; forget those that have none any more."""
        for data, kinds in list(definitions.items()):
            if data == newest:
                continue
            for kind in kinds:
                kind.is_replaced = True
                self._pool.stop_keeping(kind)
                self._end_idle(kind)
            if not self._count(kinds, lent=True) + self._count(kinds, lent=False):
                del definitions[data]

    def _end_idle(self, kind: Kind) -> None:
        """Take each idle service of a kind and have it ended."""
        pool = self._pool
        for _ in range(self._count([kind], lent=False)):
            answer, handle, ticket, _ = pool.core.ask(kind.key, THREADS)
            if answer == WAIT:
                pool.core.leave(ticket)
            elif handle is not None and answer == START:
                pool.core.discard(handle)  # it has ended by itself, and this would start another
            elif handle is not None:
                pool.give_back(pool.taken(handle), dirty=False)  # which ends what is replaced

    def _count(self, kinds: list[Kind], *, lent: bool) -> int:
        """How many services of these kinds there are."""
        keys = {kind.key for kind in kinds}
        rows: list[tuple[Any, ...]] = list(self._pool.core.services())
        return sum(1 for row in rows if row[4] in keys and row[3] is lent)
