"""Connections to the shards of a server in one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from forebay import _core, _forks
from forebay._steps import awaited
from forebay.errors import ConfigError
from forebay.tensor.client.connections import Connections
from forebay.tensor.client.futures import tickets
from forebay.tensor.client.outcome import Arrivals, cancel, raise_failure, take_versions
from forebay.tensor.client.shards import Settings
from forebay.tensor.prepare.work import Work, check_versions

if TYPE_CHECKING:
    from forebay.tensor.client.blocking import Links
    from forebay.tensor.client.calls import Make
    from forebay.tensor.client.connections import Ready
    from forebay.tensor.client.limit import Limit

__all__ = ["AsyncShards"]


class AsyncShards(Connections):
    """What the asyncio face of a client has: connections, names, and a port to its loop.

    The port's one descriptor is readable when something came for any of the connections.

    Threads: that of its loop alone.
    """

    _event = asyncio.Event

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._loop = asyncio.get_running_loop()
        self._port = _core.TensorPort()
        self._descriptor = self._port.fileno()
        self._loop.add_reader(self._descriptor, self._turn)
        self._waiting: dict[int, asyncio.Future[None]] = {}
        _forks.watch(self)

    async def run(self, make: Make, timeout: float | None, versions: Any = None) -> list[Any]:
        """Carry a call out, and return its arrays. Cancellation abandons the call."""
        work, links, timeout = await self.ready(make, timeout)
        if versions is not None:
            check_versions(versions, len(work.arrays))
        batches: list[_core.TensorBatch] = []
        try:
            asked = versions is not None
            for ticket, batch in self._start(work, links, timeout, batches, versions=asked):
                await self._done(ticket, batch)
        finally:
            cancel(batches)
        raise_failure(self.table, work, batches)
        take_versions(work, batches, versions)
        return work.arrays

    async def each(self, make: Make, timeout: float | None) -> AsyncIterator[tuple[int, Any]]:
        """Carry pulls out, and give each that is whole."""
        work, links, timeout = await self.ready(make, timeout)
        arrivals = Arrivals(self.table, work)
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
                    self.refuse_over()
                    await news
        finally:
            for ticket, _ in started:
                self._waiting.pop(ticket, None)
            cancel(batches)

    async def ready(self, make: Make, timeout: float | None) -> Ready:
        """Make a call ready; see `Shards.ready`."""
        found = self._at_once(make, timeout)
        if found is None:
            found = await awaited(self._make_ready(make, timeout), None)
        return found

    async def names(self, name: str, timeout: float | None) -> None:
        """Look one name up, unless it is known."""
        await awaited(self._find(name, timeout), None)

    def close(self) -> None:
        """Close the connections; waiting calls get `ClosedError`. Idempotent."""
        if self._closed:
            return
        self._loop.remove_reader(self._descriptor)
        self._shut()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_result(None)
        self._port.close()

    def _forget(self) -> object:
        """In a forked child: refuse everything; returns what must not be dropped there."""
        before = (self._port, self._waiting, self._leave_behind())
        self._waiting = {}
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
        """Begin all parts; those that have begun are in `batches` even if a later one fails."""
        started = []
        for shard, entries in work.parts.items():
            ticket = next(tickets)
            pulls, pushes = ((), entries) if work.pushes else (entries, ())
            start = links[shard].start
            try:
                batch = start(
                    *(self._port, ticket, pulls, pushes),
                    each=each,
                    timeout=timeout,
                    versions=versions,
                )
            except ConfigError:
                work.check_outs()
                raise
            batches.append(batch)
            started.append((ticket, batch))
        return started

    async def _done(self, ticket: int, batch: _core.TensorBatch) -> None:
        while not batch.done:
            self.refuse_over()
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

    async def _meanings(
        self, links: list[_core.TensorLink], names: list[str], limit: Limit
    ) -> list[Any]:
        batches: list[tuple[int, _core.TensorBatch]] = []
        try:
            for link in links:
                ticket = next(tickets)
                started = link.start_look_up(self._port, ticket, names, timeout=limit.left())
                batches.append((ticket, started))
            for ticket, batch in batches:
                await self._done(ticket, batch)
        finally:
            cancel([batch for _, batch in batches])
        return [batch.meanings() for _, batch in batches]
