"""The methods of a client as calls to make ready, the same for all faces."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from forebay.tensor.prepare.work import Op, Work, pulls_of, pushes_of

if TYPE_CHECKING:
    from forebay._numpy import Array
    from forebay.memory import Arena
    from forebay.tensor.prepare.ref import NameTable, TensorRef

__all__ = ["METHODS", "Calls", "Make"]

Make = Callable[["NameTable"], Work]
"""Makes a call ready, with the names that are known; see `Work.missing`."""

METHODS: Final = ("pull", "push", "pull_many", "push_many")


class Calls:
    """Calls of a client whose results are made in `arena`."""

    __slots__ = ("arena",)

    def __init__(self, arena: Arena | None) -> None:
        self.arena = arena

    def pull(self, tensor: str | TensorRef, rows: Any = None, out: Array | None = None) -> Make:
        """Pull rows of one tensor."""
        pulls = ((tensor, rows, out),)
        return lambda table: pulls_of(table, pulls, self.arena)

    def push(self, tensor: str | TensorRef, rows: Any, values: Any, op: Op = "set") -> Make:
        """Push rows of one tensor."""
        pushes = ((tensor, rows, values, op),)
        return lambda table: pushes_of(table, pushes)

    def pull_many(self, pulls: Iterable[Any]) -> Make:
        """Pull rows of several."""
        pulls = tuple(pulls)  # iterated again after names were looked up
        return lambda table: pulls_of(table, pulls, self.arena)

    def push_many(self, pushes: Iterable[Any]) -> Make:
        """Push rows of several."""
        pushes = tuple(pushes)
        return lambda table: pushes_of(table, pushes)
