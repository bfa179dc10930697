"""Acquiring a service within a span."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forebay.pool.lend.acquire import Acquire

if TYPE_CHECKING:
    from forebay import _trace

__all__ = ["traced"]


def traced(acquires: type[Acquire[Any]], spans: _trace.Spans) -> type[Acquire[Any]]:
    """The same class, whose entering is a span.

    A class of its own, so that acquires without spans do not even look whether there are any.
    """

    class Traced(acquires):  # type: ignore[misc, valid-type]
        __slots__ = ()

        def __enter__(self) -> Any:
            with spans.acquire(self._pool_name(), self._kind.name):
                return super().__enter__()

        async def __aenter__(self) -> Any:
            with spans.acquire(self._pool_name(), self._kind.name):
                return await super().__aenter__()

        def _pool_name(self) -> str:
            pool: Any = getattr(self, "_shared", self._pool)
            return str(pool.name)

    return Traced
