"""Futures of calls: one thread completes those of all clients of a process.

It is started with the first future of a client, sleeps without the interpreter's lock, and ends
with the last client that had one; a daemon, it keeps no process from ending.
The parts of a future (one for each shard that was asked) have a ticket each. The thread that takes
a future out of `_open` completes it; that is one call of a set, so it happens once, and needs no
lock.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
import weakref
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from forebay import _core, _forks
from forebay._report import RETRY_S, guarded, report
from forebay.errors import ClosedError
from forebay.tensor.client.outcome import cancel, raise_failure

if TYPE_CHECKING:
    from forebay.tensor.client.blocking import Links
    from forebay.tensor.client.client import TensorClient
    from forebay.tensor.client.shards import Shards
    from forebay.tensor.prepare.work import Work

__all__ = ["Futures", "TensorFuture", "enter", "tickets"]

_log = logging.getLogger(__name__)
tickets: Final = itertools.count(1)
"""Names of parts of calls, of all clients."""


class TensorFuture(Future[Any]):
    """The result of a call, see `TensorClient.submit`."""

    def __init__(self, client: TensorClient, work: Work, *, single: bool) -> None:
        super().__init__()
        self._client: TensorClient | None = client  # kept alive: its end would end this call
        self._work = work
        self._single = single
        self._batches: tuple[_core.TensorBatch, ...] | None = None

    def cancel(self) -> bool:
        """Stop waiting, unless it is done; memory is kept until no server writes it."""
        if not super().cancel():
            return False
        if self._batches is not None:
            cancel(self._batches)
        return True

    def over(self) -> bool:
        """Whether all parts are, and known."""
        return self._batches is not None and all(batch.done for batch in self._batches)

    def complete(self) -> None:
        """Complete the future with the outcome of the parts."""
        batches, self._batches = self._batches, None
        client, self._client = self._client, None
        if batches is None or client is None or not self.set_running_or_notify_cancel():
            return
        work = self._work
        try:
            raise_failure(client._shards.table, work, batches)
        except BaseException as error:
            self.set_exception(error)
        else:
            self.set_result(
                None if work.pushes else work.arrays[0] if self._single else work.arrays
            )

    def give_up(self) -> None:
        """End it with `ClosedError`."""
        if self._batches is not None:
            cancel(self._batches)
        if self.set_running_or_notify_cancel():
            self.set_exception(ClosedError("the tensor client was closed"))


class Futures:
    """The futures of all clients, and the thread that completes them."""

    def __init__(self) -> None:
        self.port = _core.TensorPort()
        self._open: set[TensorFuture] = set()
        self._waiting: dict[int, TensorFuture] = {}
        self._lost = False
        """A turn failed after it took tickets from the port: check every open future."""
        self.users = 0
        self._thread = threading.Thread(
            target=self._serve, name="forebay-tensor-futures", daemon=True
        )
        self._thread.start()

    def submit(
        self, client: TensorClient, work: Work, links: Links, timeout: float | None, *, single: bool
    ) -> TensorFuture:
        """Hand a call over, and return its future."""
        future = TensorFuture(client, work, single=single)
        self._open.add(future)
        batches: list[_core.TensorBatch] = []
        named = []
        try:
            for shard, entries in work.parts.items():
                ticket = next(tickets)
                named.append(ticket)
                self._waiting[ticket] = future
                pulls, pushes = ((), entries) if work.pushes else (entries, ())
                start = links[shard].start
                batches.append(start(self.port, ticket, pulls, pushes, timeout=timeout))
        except BaseException:
            self._open.discard(future)
            for ticket in named:
                self._waiting.pop(ticket, None)
            cancel(batches)
            raise
        # The thread may have taken the tickets already. Each side first writes its part, then reads
        # the other's, so that one of them sees both.
        future._batches = tuple(batches)
        if future.over():
            self._complete(future)
        return future

    def leave(self) -> None:
        """Count one client less; the thread ends with the last, which waits for that."""
        _leave(self, wait=True)

    def close(self, *, wait: bool) -> None:
        """End the thread."""
        self.port.close()
        if wait and threading.current_thread() is not self._thread:
            self._thread.join()

    def _serve(self) -> None:
        """Run the thread, which no error may end: all clients use it, and none restarts it."""
        serving = True
        while serving:
            try:
                serving = self._turn()
            except BaseException as error:
                self._lost = True
                report(_log, error, "the thread of tensor futures goes on after")
                time.sleep(RETRY_S)

    def _turn(self) -> bool:
        """Complete the futures of a turn; False once the port is closed and no future is open."""
        if self._lost:
            self._complete_those_over()
            self._lost = False
        heard = self.port.wait()
        if heard is None:
            self._end_all()
            return False
        for ticket in heard:
            future = self._waiting.pop(ticket, None)
            if future is not None and future.over():
                self._complete(future)
        return True

    def _complete_those_over(self) -> None:
        for future in tuple(self._open):
            if future.over():
                self._complete(future)

    def _end_all(self) -> None:
        self._complete_those_over()
        for future in tuple(self._open):
            if self._take(future):
                guarded(_log, "tensor", TensorFuture.give_up, future)

    def _complete(self, future: TensorFuture) -> None:
        if self._take(future):
            guarded(_log, "tensor", TensorFuture.complete, future)

    def _take(self, future: TensorFuture) -> bool:
        try:
            self._open.remove(future)
        except KeyError:
            return False
        return True


class _Process:
    """The futures of this process; another object in a forked child."""

    def __init__(self) -> None:
        self._renew()

    def _renew(self) -> None:
        self.lock = threading.Lock()
        self.futures: Futures | None = None

    def _forget(self) -> object:
        before = (self.lock, self.futures)
        self._renew()
        return before


_process: Final = _Process()


def enter(client: TensorClient) -> Futures:
    """The futures of this process, for one client more, once; `leave` them."""
    _forks.watch(_process)
    with _process.lock:
        if client._futures is not None:
            return client._futures
        if _process.futures is None:
            _process.futures = Futures()
        futures = client._futures = _process.futures
        futures.users += 1
    # Weakly, so that its descriptors are closed with the last client, not dropped with it.
    weakref.finalize(client, _lost, client._shards, weakref.ref(futures)).atexit = False
    return futures


def _lost(shards: Shards, entered: weakref.ref[Futures]) -> None:
    """A client is gone, closed or not."""
    futures = entered()
    if futures is not None and not shards.closed:
        shards.close()
        _leave(futures, wait=False)


def _leave(futures: Futures, *, wait: bool) -> None:
    with _process.lock:
        futures.users -= 1
        if futures.users or futures is not _process.futures:
            return
        _process.futures = None
    futures.close(wait=wait)
