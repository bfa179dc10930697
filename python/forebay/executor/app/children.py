"""The children of a run: requests that it submits as parts of its own work.

A direct call, outside of a server, has children too: calls of functions, here and now.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from forebay.executor.client.options import Submit

__all__ = ["AsyncOutside", "Children", "Outside"]


class Children(Protocol):
    """What a context submits with; those of an `async def` are awaited."""

    def submit(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: Submit | None
    ) -> Any:
        """A handle of the child, once that is on disk."""

    def map(self, target: Any, calls: Iterable[tuple[Any, ...]], options: Submit | None) -> Any:
        """The results of one child for each tuple of arguments, in their order."""

    def gather(self, children: Sequence[Any]) -> Any:
        """The results of all, in their order."""


class Finished:
    """A child of a direct call, which has ended."""

    id = "local"

    def __init__(self, value: Any, error: Exception | None) -> None:
        self._value = value
        self._error = error

    def result(self, timeout: float | None = None) -> Any:
        """What the function returned; raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._value

    def exception(self, timeout: float | None = None) -> Exception | None:
        """What the function raised."""
        return self._error

    def status(self) -> str:
        """How the call ended."""
        return "succeeded" if self._error is None else "failed"

    def accepted(self, timeout: float | None = None) -> str:
        """The id of every direct call."""
        return self.id

    def cancel(self) -> str:
        """It has ended."""
        return "ended"


class AsyncFinished:
    """The same, of a direct call of an `async def`."""

    id = "local"

    def __init__(self, finished: Finished) -> None:
        self._finished = finished

    async def result(self, timeout: float | None = None) -> Any:
        """What the function returned; raises what it raised."""
        return self._finished.result()

    async def exception(self, timeout: float | None = None) -> Exception | None:
        """What the function raised."""
        return self._finished.exception()

    async def status(self) -> str:
        """How the call ended."""
        return self._finished.status()

    async def accepted(self, timeout: float | None = None) -> str:
        """The id of every direct call."""
        return self.id

    async def cancel(self) -> str:
        """It has ended."""
        return "ended"


class Outside:
    """The children of a direct call: functions that run here and now, one after the other."""

    def submit(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: Submit | None
    ) -> Finished:
        """A handle of the call, which has ended."""
        try:
            return Finished(_called(target, args, kwargs), None)
        except Exception as error:
            return Finished(None, error)

    def map(
        self, target: Any, calls: Iterable[tuple[Any, ...]], options: Submit | None
    ) -> Iterator[Any]:
        """The results, each computed when it is asked for."""
        return (_called(target, args, {}) for args in calls)

    def gather(self, children: Sequence[Finished]) -> list[Any]:
        """The results of all."""
        return [child.result() for child in children]


class AsyncOutside:
    """The same for an `async def`."""

    async def submit(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: Submit | None
    ) -> AsyncFinished:
        """A handle of the call, which has ended."""
        try:
            return AsyncFinished(Finished(await _awaited(target, args, kwargs), None))
        except Exception as error:
            return AsyncFinished(Finished(None, error))

    async def map(
        self, target: Any, calls: Iterable[tuple[Any, ...]], options: Submit | None
    ) -> AsyncIterator[Any]:
        """The results, each computed when it is asked for."""
        for args in calls:
            yield await _awaited(target, args, {})

    async def gather(self, children: Sequence[AsyncFinished]) -> list[Any]:
        """The results of all."""
        return [await child.result() for child in children]


def _called(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a function returns; an `async def` runs in a loop of its own."""
    value = _function(target)(*args, **kwargs)
    return asyncio.run(_finish(value)) if inspect.isawaitable(value) else value


async def _finish(value: Awaitable[Any]) -> Any:
    return await value


async def _awaited(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    value = _function(target)(*args, **kwargs)
    return await value if inspect.isawaitable(value) else value


def _function(target: Any) -> Callable[..., Any]:
    if isinstance(target, str):
        raise RuntimeError(
            f"request {target!r} was given by its name in a direct call, outside of a server; give"
            " the function"
        )
    function: Callable[..., Any] = target
    return function
