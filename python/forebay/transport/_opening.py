"""A listener to be: nothing happens before it is entered or awaited."""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

__all__ = ["Opening"]


class Openable(Protocol):
    """What opens once, and is closed."""

    async def _open(self) -> Self: ...

    async def aclose(self) -> None: ...


L = TypeVar("L", bound=Openable)


class Opening(Generic[L]):
    """Opens a listener when it is awaited, or entered by `async with`, which closes it too."""

    __slots__ = ("_listener",)

    def __init__(self, listener: L) -> None:
        self._listener = listener

    def __await__(self) -> Generator[Any, None, L]:
        return self._listener._open().__await__()

    async def __aenter__(self) -> L:
        return await self._listener._open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._listener.aclose()
