"""The context of a run: facts about it, and what it can ask of its worker."""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

if TYPE_CHECKING:
    import logging

    from forebay.executor.app.children import Children
    from forebay.executor.app.progress import AsyncProgress, Progress
    from forebay.executor.client.call import Target
    from forebay.executor.client.options import Submit
    from forebay.memory import Arena
    from forebay.pool import Command, Service, Spec

T = TypeVar("T")
S = TypeVar("S", bound="Service")

OUTSIDE = "local"
"""The id of a request that was called directly, outside of a server."""


_ITERATED_BY = ("__iter__", "__aiter__", "__getitem__")
"""Methods one of which an object needs for `for` or `async for`."""


class Reporter(Protocol):
    """The part of a worker that a context calls."""

    def tell_progress(
        self, id: str, attempt: int, done: int, total: int | None, message: str, unit: str
    ) -> None:
        """Report how far a request is; never waits for an answer."""

    def is_cancelled(self, id: str, attempt: int) -> bool:
        """Whether it was cancelled or timed out."""

    def children_of(self, context: Context) -> Children:
        """What submits the children of this run."""


class Context:
    """The run of a request: which one it is, until when it may run, how far it is.

    A function gets it through a parameter with this annotation, of any name.
    In a direct call, outside of a server, the context is a substitute: `id` is "local", progress is
    dropped, and `acquire` lends from this process's default pool.
    Thread affinity: any thread; valid until the request has ended.

    Attributes:
        id: the request's id, 12 characters; the same in each attempt.
        attempt: 1 for the first run, more if it was run again.
        deadline: when its time-out ends it, by `time.monotonic()`; None: never.
        name: of the request.
        traceparent: of the submitter's trace, as the W3C writes it; None: it has none.
        parent: the id of the request that submitted this one; None: no request did.
    """

    __slots__ = (
        "_children",
        "_is_async",
        "_reporter",
        "attempt",
        "deadline",
        "id",
        "name",
        "parent",
        "traceparent",
    )

    def __init__(
        self,
        id: str,
        attempt: int,
        name: str,
        *,
        timeout: float | None = None,
        traceparent: str | None = None,
        parent: str | None = None,
        reporter: Reporter | None = None,
    ) -> None:
        self.id = id
        self.attempt = attempt
        self.name = name
        self.deadline = None if timeout is None else time.monotonic() + timeout
        self.traceparent = traceparent
        self.parent = parent
        self._reporter = reporter
        self._children: Children | None = None
        self._is_async = False
        """Of a direct call: whether its function awaits."""

    @property
    def remaining(self) -> float | None:
        """Seconds until the deadline, at least 0; None without a deadline."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    @property
    def log(self) -> logging.Logger:
        """A logger whose records, from INFO on, are lines of the request's log.

        Outside of a server it is an ordinary logger.
        """
        from forebay.executor.app.log import logger_of

        return logger_of(self.name, worker=self._reporter is not None)

    @property
    def arena(self) -> Arena:
        """Memory of this worker that other processes may map; made on first use.

        Its limit is an eighth of the server's memory limit. A buffer of it lives as long as there
        is a reference to it, also after the request.
        """
        from forebay.executor.app.arena import worker_arena

        return worker_arena()

    def cancelled(self) -> bool:
        """Whether this request was cancelled or timed out, for code that caught the exception.

        Also for threads of the request, in which nothing is raised.
        """
        return self._reporter is not None and self._reporter.is_cancelled(self.id, self.attempt)

    @overload
    def progress(
        self, iterable: Iterable[T], total: int | None = ..., *, message: str = ..., unit: str = ...
    ) -> Progress[T]: ...

    @overload
    def progress(
        self,
        iterable: AsyncIterable[T],
        total: int | None = ...,
        *,
        message: str = ...,
        unit: str = ...,
    ) -> AsyncProgress[T]: ...

    @overload
    def progress(
        self, iterable: None = ..., total: int | None = ..., *, message: str = ..., unit: str = ...
    ) -> Progress[int]: ...

    def progress(
        self,
        iterable: Any = None,
        total: int | None = None,
        *,
        message: str = "",
        unit: str = "",
    ) -> Any:
        """Iterate, and report progress to watching clients, at most 10 times a second.

        Args:
            iterable: what to go through, by `for` or `async for`; None: call `advance` yourself.
            total: how many items there will be; default: its length, where it has one.
            message: shown beside the bar; the attribute `message` of the result may be changed.
            unit: what is counted, as in "files".

        Raises:
            TypeError: `iterable` is not iterable, as the number in `ctx.progress(3, 10)`.

        Example: `for path in ctx.progress(paths, unit="files"): ...`
        """
        from forebay.executor.app import progress

        if iterable is not None and not any(hasattr(iterable, it) for it in _ITERATED_BY):
            raise TypeError(
                f"progress was given {iterable!r:.100}, which cannot be iterated; give it what is"
                " gone through, or progress(total=...) and call its advance()"
            )
        kind = progress.AsyncProgress if hasattr(iterable, "__aiter__") else progress.Progress
        return kind(self, iterable, total, message=message, unit=unit)

    def acquire(
        self,
        what: type[S] | Spec[S] | Command,
        *,
        timeout: float | None = 30.0,
        by_value: bool = False,
    ) -> Any:
        """Lend a service of the server's pool, as `forebay.acquire` does in a request too.

        The lease ends with its `with` block, and with the request at the latest.
        Arguments and errors are those of `ServicePool.acquire`.
        """
        from forebay.pool import acquire

        return acquire(what, timeout=timeout, by_value=by_value)

    def submit(
        self, target: Target, /, *args: Any, options: Submit | None = None, **kwargs: Any
    ) -> Any:
        """Submit a request as a part of this one: its child.

        Waiting for a child gives this run's place in its lane back, its cores, its name's place and
        what it may still grow by, so that requests that wait for each other do not hold each other
        up. If this request is cancelled, or ends without success, its unfinished children are
        cancelled. Its next run finds the children of this one, by the order in which they were
        submitted, and submits none twice.

        Args:
            target: a function of the application, or the name of a request.
            args: its positional arguments.
            options: of this submission. The submitter is that of this request.
            kwargs: its arguments by name.

        Returns:
            A `forebay.Request` once it is on disk: `result()` waits for its end. In an `async def`
            a coroutine, of a `forebay.AsyncRequest`. In a direct call, outside of a server, the
            function runs here and now.

        Raises:
            ConfigError: the arguments do not fit; a request above this child holds the key that it
                needs; an earlier run submitted another child in its place.
            LimitError: `children_max`, 10,000 of one run, `depth_max`, 64 above each other, or
                `max_queued`.

        Threads and tasks: any of this request; the order of their submissions must be the same in
        each run, or each child has an idempotency key of its own.
        """
        return self._submitter().submit(target, args, kwargs, options)

    def map(
        self, target: Target, /, *iterables: Iterable[Any], options: Submit | None = None
    ) -> Any:
        """The results of one child for each item, or each tuple of items, in their order.

        At most 256 are submitted and not read, the first of them at once; in an `async def` when
        the first result is asked for. Arguments and errors are those of `submit`.

        Returns:
            An iterator; in an `async def` an asynchronous one. It raises what a child raised when
            it comes to that one's result; the children behind it go on, unless this request ends
            without success.

        Example: `total = sum(ctx.map(count_words, paths))`
        """
        return self._submitter().map(target, zip(*iterables, strict=False), options)

    def gather(self, *children: Any) -> Any:
        """The results of children, in their order; in an `async def` to be awaited.

        Raises:
            what the first of them that did not succeed raises; the others go on, unless this
            request ends without success.
        """
        return self._submitter().gather(children)

    def _submitter(self) -> Children:
        if self._children is None:
            if self._reporter is None:
                from forebay.executor.app.children import AsyncOutside, Outside

                self._children = AsyncOutside() if self._is_async else Outside()
            else:
                self._children = self._reporter.children_of(self)
        return self._children

    def tell(self, done: int, total: int | None, message: str, unit: str) -> None:
        """Report how far it is, at once; `progress` chooses the moments."""
        if self._reporter is not None:
            self._reporter.tell_progress(self.id, self.attempt, done, total, message, unit)

    def __repr__(self) -> str:
        return f"<Context of {self.name} {self.id}, attempt {self.attempt}>"


def outside(name: str, *, is_async: bool = False) -> Context:
    """The context of a direct call; `is_async`: of an `async def`."""
    context = Context(OUTSIDE, 1, name)
    context._is_async = is_async
    return context
