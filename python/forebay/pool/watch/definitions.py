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
    kinds are marked as replaced. One that is being reset then is ended by the pool's next acquire
    or release. A definition counts if the main module still has it under its name; a class that was
    made in a function has no name there, and its services stay.

    Thread-safe.

    Attributes:
        has_replaced: whether services of older definitions may still live.
    """

    __slots__ = ("_kinds", "_lock", "_pool", "has_replaced")

    def __init__(self, pool: ServicePool) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._kinds: dict[str, dict[bytes, list[Kind]]] = {}
        """By the name of the class and the bytes of its definition; one kind for each spec."""
        self.has_replaced = False

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
            for data, others in definitions.items():
                for other in others:
                    # Not of this one, which a variable that has its earlier value brings back.
                    other.is_replaced = data != value.data
        self.has_replaced = self.has_replaced or len(definitions) > 1
        if self.has_replaced:
            self.end_replaced()

    def end_replaced(self) -> None:
        """End the idle services of older definitions; forget those that have none any more."""
        if not self._lock.acquire(blocking=False):
            return  # another thread does, or this one: a lease ends here too
        try:
            for definitions in self._kinds.values():
                for data, kinds in list(definitions.items()):
                    if kinds[0].is_replaced and self._end_all(kinds):
                        self._pool.forget(definitions.pop(data))
            self.has_replaced = any(len(one) > 1 for one in self._kinds.values())
        finally:
            self._lock.release()

    def _end_all(self, kinds: list[Kind]) -> bool:
        """End the idle services of one definition; whether it has none any more."""
        for kind in kinds:
            self._pool.stop_keeping(kind)
            self._end_idle(kind)
        return not self._count(kinds, lent=True) + self._count(kinds, lent=False)

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
