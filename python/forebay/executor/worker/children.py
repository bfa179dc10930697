"""Submitting the children of a run from its worker, and telling the server that it waits for them.

The concept is docs/concepts/executor/children.md.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

from forebay.errors import ConfigError, DeadlineError
from forebay.executor.client.async_client import AsyncClient
from forebay.executor.client.async_request import AsyncRequest
from forebay.executor.client.client import Client
from forebay.executor.client.options import Submit
from forebay.executor.client.request import Request
from forebay.executor.worker.forks import is_forked
from forebay.executor.worker.side import GOES_ON, WAITS

if TYPE_CHECKING:
    from types import TracebackType

    from forebay.executor.app.context import Context
    from forebay.executor.worker.side import Side

__all__ = ["AsyncChildren", "ParentClients", "SyncChildren"]

MAP_AHEAD: Final = 256
"""Children of a `map` that are submitted and not read (`map_ahead`)."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSubmit(Submit):
    """The options of a child, with its place among the submissions of its parent."""

    call: int = 0
    attempt: int = 0

    @classmethod
    def of(cls, options: Submit | None, parent: Context, call: int) -> ChildSubmit:
        """Those of a submission, as that of a child; it belongs to the trace of its parent.

        Raises:
            ConfigError: this process was forked by the parent's.
        """
        if is_forked():
            raise ConfigError(
                f"a process that request {parent.id} has forked cannot submit its children: it"
                " counts their calls too; submit them in the request itself"
            )
        given: dict[str, Any] = {"traceparent": parent.traceparent}
        for it in _FIELDS if options is not None else ():
            if (value := getattr(options, it.name)) is not None:
                given[it.name] = value
        own = {"parent": parent.id, "call": call, "attempt": parent.attempt}
        return cls(**{**given, **own})

    @property
    def is_repeatable(self) -> bool:
        """By its call the server knows one that is sent twice."""
        return True


_FIELDS: Final = fields(Submit)


class Waiting:
    """Entered while a run waits for a child; the server hears of the first and of the last.

    A run with several threads counts as waiting while one of them waits.

    Threads: any.
    """

    def __init__(self, side: Side, id: str, attempt: int) -> None:
        self._side = side
        self._run = (id, attempt)
        self._lock = threading.Lock()
        self._count = 0

    def __enter__(self) -> None:
        with self._lock:
            self._count += 1
            if self._count > 1:
                return
            try:
                self._side.send(WAITS, *self._run, b"")
            except BaseException:  # an interrupt of the run: the block is not entered
                self._count -= 1
                self._side.send(GOES_ON, *self._run, b"")
                raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0:
                self._side.send(GOES_ON, *self._run, b"")


class Child(Request):
    """A child of a run that blocks until it has ended."""

    __slots__ = ("waiting",)

    waiting: Waiting

    def watch(self, timeout: float | None = None) -> Any:
        """Wait as `result` does, while its output and its progress are shown here."""
        with self.waiting:
            return super().watch(timeout)

    def logs(self, *, follow: bool = True, offset: int = 0) -> Iterator[str]:
        """What it wrote to stdout and stderr, as it is written."""
        return _waited(self.waiting, super().logs(follow=follow, offset=offset))

    def events(self) -> Iterator[dict[str, Any]]:
        """Changes of its status, its progress and the reasons why it waits, until it ends."""
        return _waited(self.waiting, super().events())

    def _wait(self, timeout: float | None) -> None:
        with contextlib.suppress(DeadlineError):
            return super()._wait(0.0)
        with self.waiting:
            return super()._wait(timeout)

    def _blocking(self) -> AbstractContextManager[None]:
        return self.waiting


class AsyncChild(AsyncRequest):
    """A child of a run whose task waits until it has ended."""

    __slots__ = ("waiting",)

    waiting: Waiting

    async def watch(self, timeout: float | None = None) -> Any:
        """Await as `result` does, while its output and its progress are shown."""
        with self.waiting:
            return await super().watch(timeout)

    async def logs(self, *, follow: bool = True, offset: int = 0) -> AsyncIterator[str]:
        """What it wrote to stdout and stderr, as it is written."""
        async for text in _waited_async(self.waiting, super().logs(follow=follow, offset=offset)):
            yield text

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """Changes of its status, its progress and the reasons why it waits, until it ends."""
        async for event in _waited_async(self.waiting, super().events()):
            yield event

    async def _wait(self, timeout: float | None) -> None:
        if self._status is None:
            with self.waiting:
                await super()._wait(timeout)

    def _blocking(self) -> AbstractContextManager[None]:
        return self.waiting


def _waited(waiting: Waiting, given: Iterator[T]) -> Iterator[T]:
    """The same items; the run waits while it waits for one."""
    ended: Any = object()
    while True:
        with waiting:
            item = next(given, ended)
        if item is ended:
            return
        yield item


async def _waited_async(waiting: Waiting, given: AsyncIterator[T]) -> AsyncIterator[T]:
    ended: Any = object()
    while True:
        with waiting:
            item = await anext(given, ended)
        if item is ended:
            return
        yield item


class ParentClient(Client):
    """The client by which a worker submits children of what it runs."""

    _handle = Child


class AsyncParentClient(AsyncClient):
    """The same, for the tasks of the worker's loop."""

    _handle = AsyncChild


class ParentClients:
    """Makes the client of a worker on first use; its process may be a fork of another one.

    Args:
        path: of the server's socket for clients.
    """

    def __init__(self, path: str) -> None:
        self._url = f"unix://{path}"
        self._lock = threading.Lock()
        self._client: ParentClient | None = None
        self._async_client: AsyncParentClient | None = None

    def get(self) -> ParentClient:
        """The one for threads."""
        with self._lock:
            if self._client is None:
                self._client = ParentClient(self._url, start=False)
            return self._client

    def get_async(self) -> AsyncParentClient:
        """The one for the worker's loop."""
        if self._async_client is None:
            self._async_client = AsyncParentClient(self._url, start=False)
        return self._async_client


class SyncChildren:
    """The children of a run in the worker's main thread, or in threads that it starts."""

    def __init__(self, clients: ParentClients, side: Side, context: Context) -> None:
        self._clients = clients
        self._context = context
        self._calls = itertools.count()
        self._waiting = Waiting(side, context.id, context.attempt)

    def submit(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: Submit | None
    ) -> Request:
        """A handle of the child, once that is on disk."""
        child = self._begin(target, args, kwargs, options)
        child.accepted()
        return child

    def map(
        self, target: Any, calls: Iterable[tuple[Any, ...]], options: Submit | None
    ) -> Iterator[Any]:
        """The results, in the order of the calls; the first ones are submitted at once."""
        begun = (self._begin(target, args, {}, options) for args in calls)
        return _results(deque(itertools.islice(begun, MAP_AHEAD)), begun)

    def gather(self, children: Sequence[Any]) -> list[Any]:
        """The results of all."""
        with self._waiting:  # once for all of them
            return [child.result() for child in children]

    def _begin(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: Submit | None
    ) -> Request:
        asked = ChildSubmit.of(options, self._context, next(self._calls))
        child = self._clients.get().submit_nowait(target, *args, options=asked, arguments=kwargs)
        assert isinstance(child, Child)
        child.waiting = self._waiting
        return child


def _results(ahead: deque[Request], begun: Iterator[Request]) -> Iterator[Any]:
    """The results of children, one of which more is submitted for each that is read."""
    while ahead:
        yield ahead.popleft().result()
        ahead.extend(itertools.islice(begun, 1))


class AsyncChildren:
    """The children of a run that is a task of the worker's loop."""

    def __init__(self, clients: ParentClients, side: Side, context: Context) -> None:
        self._clients = clients
        self._context = context
        self._calls = itertools.count()
        self._waiting = Waiting(side, context.id, context.attempt)

    async def submit(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: Submit | None
    ) -> AsyncRequest:
        """A handle of the child, once that is on disk."""
        child = await self._begin(target, args, kwargs, options)
        await child.accepted()
        return child

    async def map(
        self, target: Any, calls: Iterable[tuple[Any, ...]], options: Submit | None
    ) -> AsyncIterator[Any]:
        """The results, in the order of the calls."""
        ahead: deque[AsyncRequest] = deque()
        for args in calls:
            ahead.append(await self._begin(target, args, {}, options))
            if len(ahead) >= MAP_AHEAD:
                yield await ahead.popleft().result()
        while ahead:
            yield await ahead.popleft().result()

    async def gather(self, children: Sequence[Any]) -> list[Any]:
        """The results of all."""
        with self._waiting:
            return [await child.result() for child in children]

    async def _begin(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: Submit | None
    ) -> AsyncRequest:
        asked = ChildSubmit.of(options, self._context, next(self._calls))
        client = self._clients.get_async()
        child = await client.submit_nowait(target, *args, options=asked, arguments=kwargs)
        assert isinstance(child, AsyncChild)
        child.waiting = self._waiting
        return child
