"""A worker that knows `call`, and a supervisor of such workers, for tests of the dispatcher."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import threading
from typing import Any

import msgspec

import forebay
from forebay import _core
from forebay.rpc import current

MSGPACK = 0


class Calling(forebay.Service):
    """Runs what the dispatcher sends, until it is told to leave."""

    def serve(self) -> None:
        """Answer `call` and `run`: of a pickled function the result, of a run what it was told."""
        connection: Any = current()._connection
        while (call := connection.next_call(None)) is not None:
            number, _, head, segments, *_ = call
            method, arguments, _ = msgspec.msgpack.decode(head)
            if method == "end":
                raise SystemExit
            reply = self._call(arguments, segments) if method == "call" else [0, head]
            connection.reply(number, MSGPACK, msgspec.msgpack.encode(reply))

    def _call(self, arguments: list[Any], segments: Any) -> list[Any]:
        blob = segments[0] if arguments[0] is None else arguments[0]
        function, values = pickle.loads(blob)
        try:
            return [0, pickle.dumps(function(*values))]
        except Exception as error:
            return [1, pickle.dumps(error)]


class Supervisor:
    """Starts and ends workers as the dispatcher orders, in a thread of its own."""

    def __init__(self, dispatcher: _core.Dispatcher, pool: forebay.ServicePool) -> None:
        self.dispatcher = dispatcher
        self.pool = pool
        self.leases: dict[int, Any] = {}
        self.orders: list[tuple[Any, ...]] = []
        self._may_take = threading.Event()
        self._may_take.set()
        self._rests = threading.Event()
        self._thread = threading.Thread(target=self._run, name="supervisor")
        self._thread.start()

    def _run(self) -> None:
        # The dispatcher was closed while a worker was on its way, which may have ended by now.
        with contextlib.suppress(forebay.ClosedError, ProcessLookupError):
            while (orders := self._take()) is not None:
                for order in orders:
                    self.orders.append(order)
                    self._obey(*order)

    def _take(self) -> list[tuple[Any, ...]] | None:
        if not self._may_take.is_set():
            self._rests.set()
            self._may_take.wait(20)
        return self.dispatcher.orders(None)

    def _obey(self, what: str, slot: Any = -1, lane: str = "", nonce: int = 0) -> None:
        if what == "start":
            spec, arguments = self.recruit(slot, lane, nonce)
            lease: Any = self.pool.acquire(spec).__enter__().lease
            self.leases[slot] = lease
            channel, tag = lease._record.channel, lease._handle.tag
            connection = channel._connection
            head, segments = channel._encode_call("serve", arguments, {})
            connection.start(channel._number, head, segments, None, tag, True)
            pidfd = os.pidfd_open(lease.pid)
            self.dispatcher.worker_ready(slot, connection, lease.pid, pidfd, tag)
        elif what == "died":
            lease = self.leases.pop(slot)
            self.dispatcher.worker_died(slot, "signal", lease.pid, None, 9, None, None, "")

    def recruit(self, slot: int, lane: str, nonce: int) -> tuple[Any, tuple[Any, ...]]:
        """What to start, and what its `serve` is told."""
        return Calling, ()

    def pause(self) -> None:
        """Take no orders from here on."""
        self._may_take.clear()
        self.dispatcher.wake()
        assert self._rests.wait(20)

    def go_on(self) -> None:
        """Take orders again."""
        self._may_take.set()

    def kill(self, slot: int) -> None:
        """End a worker as the kernel might."""
        os.kill(self.leases[slot].pid, signal.SIGKILL)

    def join(self) -> None:
        """Wait for the thread; the dispatcher must be closed."""
        self._thread.join(10)
        assert not self._thread.is_alive()
