"""A value of the server that many requests need, asked for once a second at most."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

__all__ = ["Fresh"]

AGE_S: Final = 1.0

Value = TypeVar("Value")


class Fresh(Generic[Value]):
    """What `load` returned, not older than a second when it was asked for.

    All that ask at the same time wait for one call of `load`; what it raises they all get.

    Loop affinity: one loop.
    """

    def __init__(self, load: Callable[[], Awaitable[Value]]) -> None:
        self._load = load
        self._value: Value | None = None
        self._loaded_at = -AGE_S
        self._loading: asyncio.Task[Value] | None = None

    async def get(self) -> Value:
        """The value. Cancellation: safe; the others go on waiting."""
        loop = asyncio.get_running_loop()
        if self._value is not None and loop.time() - self._loaded_at < AGE_S:
            return self._value
        if self._loading is None:
            self._loading = loop.create_task(self._begin())
            self._loading.add_done_callback(_look_at)
        return await asyncio.shield(self._loading)

    async def _begin(self) -> Value:
        began = asyncio.get_running_loop().time()
        try:
            self._value = await self._load()
            self._loaded_at = began
            return self._value
        finally:
            self._loading = None


def _look_at(task: asyncio.Task[Any]) -> None:
    """Count what it raised as seen, also where all that waited have left."""
    if not task.cancelled():
        task.exception()
