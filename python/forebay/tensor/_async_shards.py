"""Connections to the shards of a server in one event loop, and how it hears of their calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from forebay import _core, _forks
from forebay.errors import BrokenError, ClosedError, DeadlineError, Error, StaleError
from forebay.tensor import _verbs
from forebay.tensor._futures import tickets
from forebay.tensor._outcome import Arrivals, cancel, raise_failure, take_versions
from forebay.tensor._ref import Book, too_restless
from forebay.tensor._shards import NAMES_MAX, RESTARTS_MAX, SETTING_UP, Settings, alive, made
from forebay.tensor._work import Work, check_versions

if TYPE_CHECKING:
    from forebay.tensor._blocking import Links
    from forebay.tensor._calls import Make

__all__ = ["AsyncShards"]


class AsyncShards:
    """What the asyncio face of a client has: connections, names, and a port to its loop.

    The port's one descriptor is readable when something came for any of the connections.

    Threads: that of its loop alone.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.book = Book(settings.urls)
        self._links: list[_core.TensorLink | None] = [None] * len(settings.urls)
        self._locks = [asyncio.Lock() for _ in settings.urls]
        self._loop = asyncio.get_running_loop()
        self._port = _core.TensorPort()
        self._descriptor = self._port.fileno()
        self._loop.add_reader(self._descriptor, self._turn)
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._closed = self._forked = False
        _forks.watch(self)

    async def run(self, make: Make, timeout: float | None, versions: Any = None) -> list[Any]:
        """Carry a call out; its arrays. If cancelled, let go of it."""
        work, links = await self.ready(make, timeout)
        if versions is not None:
            check_versions(versions, len(work.arrays))
        batches: list[_core.TensorBatch] = []
        try:
            asked = versions is not None
            for ticket, batch in self._start(work, links, timeout, batches, versions=asked):
                await self._done(ticket, batch)
        finally:
            cancel(batches)
        raise_failure(self.book, work, batches)
        take_versions(work, batches, versions)
        return work.arrays

    async def each(self, make: Make, timeout: float | None) -> AsyncIterator[tuple[int, Any]]:
        """Carry pulls out, and give each that is whole."""
        work, links = await self.ready(make, timeout)
        arrivals = Arrivals(self.book, work)
        batches: list[_core.TensorBatch] = []
        started: list[tuple[int, _core.TensorBatch]] = []
        try:
            started = self._start(work, links, timeout, batches, each=True)
            while arrivals.left:
                news = self._loop.create_future()
                self._waiting.update((ticket, news) for ticket, _ in started)
                for shard, batch in zip(work.parts, batches, strict=True):
                    for item in arrivals.take(shard, batch, batch.arrived()):
                        yield item, work.arrays[item]
                if arrivals.left:
                    self._refuse_over()
                    await news
        finally:
            for ticket, _ in started:
                self._waiting.pop(ticket, None)
            cancel(batches)

    async def ready(self, make: Make, timeout: float | None) -> tuple[Work, Links]:
        """Make a call ready; see `Shards.ready`."""
        book = self.book
        for _ in range(RESTARTS_MAX):
            work = made(make, book, self._links)
            if work.missing:
                await self._look_up(sorted(set(work.missing)), timeout)
                continue
            links = {shard: await self._link(shard, timeout) for shard in work.parts}
            if work.epoch == book.epoch:
                return work, links
        raise too_restless(self.settings.urls)

    async def names(self, name: str, timeout: float | None) -> None:
        """Look one name up, unless it is known."""
        for shard in range(len(self._links)):
            await self._link(shard, timeout)
        if self.book.find(name) is None:
            await self._look_up([name], timeout)

    def metrics(self) -> list[dict[str, Any]]:
        """Of each connection that is open."""
        return [link.metrics() for link in self._links if link is not None and not link.closed]

    def close(self) -> None:
        """Close the connections; who waits gets `ClosedError`. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._descriptor)
        for shard, link in enumerate(self._links):
            self._links[shard] = None
            if link is not None:
                link.close()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_result(None)
        self._port.close()

    def _forget(self) -> object:
        """In a forked child: refuse everything; returns what must not be dropped there."""
        before = (self._links, self._port, self._waiting)
        self._links = [None] * len(self._links)
        self._waiting = {}
        self._closed = self._forked = True
        return before

    def _start(
        self,
        work: Work,
        links: Links,
        timeout: float | None,
        batches: list[_core.TensorBatch],
        *,
        each: bool = False,
        versions: bool = False,
    ) -> list[tuple[int, _core.TensorBatch]]:
        """Begin all parts; those that were begun stand in `batches` also where one fails."""
        started = []
        for shard, entries in work.parts.items():
            ticket = next(tickets)
            pulls, pushes = ((), entries) if work.pushes else (entries, ())
            batch = links[shard].start(
                *(self._port, ticket, pulls, pushes),
                each=each,
                timeout=timeout,
                versions=versions,
            )
            batches.append(batch)
            started.append((ticket, batch))
        return started

    async def _done(self, ticket: int, batch: _core.TensorBatch) -> None:
        while not batch.done:
            self._refuse_over()
            future = self._waiting[ticket] = self._loop.create_future()
            try:
                await future
            finally:
                self._waiting.pop(ticket, None)

    def _turn(self) -> None:
        for ticket in self._port.turn():
            future = self._waiting.pop(ticket, None)
            if future is not None and not future.done():
                future.set_result(None)

    async def _link(self, shard: int, timeout: float | None) -> _core.TensorLink:
        link = self._links[shard]
        if link is not None and alive(link):
            return link
        self._refuse_over()
        async with self._locks[shard]:
            link = self._links[shard]
            if link is None or not alive(link):
                # Not closed: what is outstanding there is to end with what it broke of.
                self._links[shard] = None
                link = await self._open(shard, timeout)
                if self._closed:
                    link.close()
                    self._refuse_over()
                self.book.connected(shard, link.incarnation)
                self._links[shard] = link
            return link

    async def _open(self, shard: int, timeout: float | None) -> _core.TensorLink:
        settings = self.settings
        limit = settings.config.connect_timeout
        limit = limit if timeout is None else min(limit, timeout)
        link: _core.TensorLink = await self._greet(shard, limit, settings.hello(), settings.link)
        hello = _verbs.offer(settings.config, settings.arena, link)
        if hello is None:
            return link
        needed = settings.config.fabric == "verbs"
        try:
            await self._greet(
                *(shard, limit, hello),
                lambda lifeline, welcome: link.use_verbs(lifeline._core, welcome, needed=needed),
            )
        except Error as error:
            _verbs.give_up(settings.config, link, error)
        except BaseException:
            link.close()
            raise
        return link

    async def _greet(
        self, shard: int, limit: float, hello: bytes, use: Callable[[Any, Any], Any]
    ) -> Any:
        """Connect, say hello, and have what is answered used."""
        connection = None
        try:
            async with asyncio.timeout(limit):
                connection = await self.settings.connect(shard, limit)
                await connection.send([hello])
                welcome = (await connection.recv())[0]
            return use(connection, welcome)
        except TimeoutError as error:
            if isinstance(error, DeadlineError):
                raise
            raise DeadlineError(
                f"{self.settings.urls[shard]} did not answer within {limit:g} s", timeout=limit
            ) from None
        except BrokenError as error:
            error.add_note(SETTING_UP)
            raise
        finally:
            if connection is not None:
                connection.abort()  # its stream has gone over to the link, or is of no use

    async def _look_up(self, names: list[str], timeout: float | None) -> None:
        for begin in range(0, len(names), NAMES_MAX):
            some = names[begin : begin + NAMES_MAX]
            links = [await self._link(shard, timeout) for shard in range(len(self._links))]
            epoch = self.book.epoch
            batches: list[tuple[int, _core.TensorBatch]] = []
            try:
                for link in links:
                    ticket = next(tickets)
                    started = link.start_look_up(self._port, ticket, some, timeout=timeout)
                    batches.append((ticket, started))
                for ticket, batch in batches:
                    await self._done(ticket, batch)
            finally:
                cancel([batch for _, batch in batches])
            self.book.learn(some, [batch.meanings() for _, batch in batches], epoch)

    def _refuse_over(self) -> None:
        if self._forked:
            raise StaleError(
                "this tensor client was made by another process, which this one was forked from;"
                " make one here"
            )
        if self._closed:
            raise ClosedError("the tensor client is closed; make another one")
