"""Stands for a worker on a node: the process that the dispatcher of this machine deals with.

It has what the dispatcher expects of a worker (connection, side socket, output, a process that
ends), and carries all of it over a link. The concept is docs/concepts/executor/engine.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from forebay.errors import BrokenError, Error
from forebay.executor.engine.engagement import engage
from forebay.executor.engine.files import FileWriter
from forebay.executor.engine.link import (
    CALL,
    CLIENT,
    CREDIT,
    CREDIT_BYTES,
    DIED,
    FAILED,
    ITEMS,
    OUTPUT,
    PENDING_MAX,
    PING_MS,
    REPLY,
    RESULT,
    SERVE,
    SIDE,
    SIGNAL,
    Link,
    pack_message,
    unpack_message,
)
from forebay.executor.engine.order import Order, Place, host_identity
from forebay.executor.engine.tunnel import Tunnel
from forebay.executor.engine.watched import Watched, events_of
from forebay.executor.wire.codec import decoder
from forebay.executor.wire.ids import number_of
from forebay.executor.worker import answers
from forebay.executor.worker.entry import Unkept
from forebay.executor.worker.failure import failure_of
from forebay.executor.worker.forks import INTERRUPT_SIGNAL
from forebay.executor.worker.isolation import wait_until_read
from forebay.executor.worker.side import RECALL, Side, interrupt_of, parsed, redirect_output
from forebay.executor.worker.worker import Worker

if TYPE_CHECKING:
    from forebay._core import Connection
    from forebay.executor.engine.link import Record

__all__ = ["NODE_LOST", "StandIn", "told_death"]

NODE_LOST: Final = "node_lost"
"""The cause of a death of which its node told nothing."""

CALLS_AT_ONCE: Final = 64

_MARK: Final = "forebay worker ended: "
"""Begins the last line of a stand-in, which its keeper keeps: a death as JSON."""

TOLD_BYTES_MAX: Final = 15 << 10
"""Of that line; its keeper keeps the last 16 KiB of what a stand-in writes."""


class StandIn(Worker):
    """A worker whose requests run on a node. Arguments as those of `Worker`."""

    def engage(self, order: dict[str, Any], place: Place) -> int:
        """Have the cluster find a node, and its worker started; waits for as long as it takes.

        Returns:
            The process of the worker, 0 where it is on another machine.

        Raises:
            ConfigError: the node cannot run the application, or the cluster refuses the task.
        """
        self._link, self._agent, told = engage(Order.of(order), place)
        return int(told["pid"]) if told["host"] == host_identity() else 0

    def _serve(
        self,
        connection: Connection,
        slot: int,
        lane: str,
        side_path: str,
        nonce: int,
        options: dict[str, Any],
    ) -> None:
        last_words = os.dup(2)  # the keeper's, before the dispatcher's is in its place
        reading = redirect_output()
        side = Side.connect(side_path, slot, nonce, reading)
        os.close(reading)
        relay = _Relay(self._link, connection, side, lane, options)
        try:
            death = relay.run(slot)
        finally:
            self._agent.close()
        if death is not None:
            os.write(last_words, _told_line(death))
        raise SystemExit(0)  # the connection is no longer for the pool's calls


def told_death(last_output: str) -> dict[str, Any] | None:
    """The death that a stand-in has told with its last line; None: it ended by itself."""
    # The output of the worker, which is part of it, may have the mark in it; it has no line's end.
    lines = (line for line in reversed(last_output.split("\n")) if line.startswith(_MARK))
    told = next(lines, None)
    if told is None:
        return None
    try:
        death = json.loads(told.removeprefix(_MARK))
    except ValueError:
        return None
    return death if isinstance(death, dict) else None


def _told_line(death: dict[str, Any]) -> bytes:
    """A death as `told_death` reads it, with as much of the last output as has room."""
    while True:
        line = f"\n{_MARK}{json.dumps(death)}\n".encode()
        if len(line) <= TOLD_BYTES_MAX:
            return line
        last = death["last_output"]
        death = {**death, "last_output": last[len(last) // 4 + 1 :]}


class _Relay:
    """Carries everything of a worker between the dispatcher and its node, until one has ended."""

    def __init__(
        self, link: Link, connection: Connection, side: Side, lane: str, options: dict[str, Any]
    ) -> None:
        self._link = link
        self._connection = connection
        self._side = side
        self._one_by_one = lane != "async"
        self._lane = lane
        self._options = options
        self._files = FileWriter(options.get("state"), synced=options["items"]["synced"])
        self._tunnel = Tunnel(
            options["clients"],
            listens=False,
            send=lambda number, data: link.put(CLIENT, number, data),
            credit=lambda number, count: link.put(CREDIT, number, CREDIT_BYTES.pack(count)),
        )
        self._decode = decoder(tuple[str, list[Any], Any]).decode
        self._held: deque[tuple[int, Any, Any]] = deque()
        """Calls that were not sent to the node: number, head and segments."""
        self._sent: dict[int, tuple[int, int] | None] = {}
        """The runs of calls that were sent and not answered."""
        self._returned: set[int] = set()
        self._printed = False
        """Whether output was written since the last reply."""
        self._signals: list[int] = []
        self._death: dict[str, Any] | None = None
        self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self, slot: int) -> dict[str, Any] | None:
        """Carry until the worker has ended: how; None: the server has ended."""
        for number in (signal.SIGTERM, INTERRUPT_SIGNAL):
            signal.signal(number, lambda number, _: self._signals.append(number))
        signal.set_wakeup_fd(self._wake[1], warn_on_full_buffer=False)
        told = {"slot": slot, "lane": self._lane, "options": self._told_options()}
        self._link.put(SERVE, 0, json.dumps(told).encode())
        self._connection.attach()
        watched = Watched()
        try:
            self._take_calls()  # those that came before
            self._send_calls()
            while self._death is None:
                timeout_ms = 0 if self._link.has_more else PING_MS
                self._turn(watched.wait(self._wanted(), timeout_ms))
                if self._connection.over or self._connection.closed:
                    return None
        except BrokenError as error:
            self._take_last()
            if self._death is None:
                self._death = {"cause": NODE_LOST, "last_output": str(error)}
        finally:
            self._tunnel.close()
            self._link.close()
        with contextlib.suppress(Error):
            self._connection.drain(1.0)
        return self._death

    def _told_options(self) -> dict[str, Any]:
        """What of the options means something on another machine."""
        names = ("result_bytes_max", "items", "async_at_once", "log_format", "oom_score")
        return {name: self._options[name] for name in names if name in self._options}

    def _wanted(self) -> dict[int, int]:
        wanted = {self._wake[0]: select.POLLIN, self._link.fileno(): self._link.events}
        reads, writes = self._connection.wants()
        if self._link.pending > PENDING_MAX:
            reads = False
        else:
            wanted[self._side.fileno()] = select.POLLIN
            wanted |= self._tunnel.events()
        if reads or writes:
            wanted[self._connection.fileno()] = events_of(reads, writes)
        return wanted

    def _turn(self, ready: dict[int, int]) -> None:
        if self._side.fileno() in ready:
            self._take_side()
        if self._wake[0] in ready:
            self._pass_signals()  # behind the record that they announce
        if self._connection.fileno() in ready or self._connection.holds_received:
            self._take_calls()
        if self._link.fileno() in ready or self._link.has_more:
            for record in self._link.take():
                self._take(record)
        self._tunnel.advance(ready)
        self._send_calls()
        self._link.flush()
        self._link.keep_alive()

    # To the node.

    def _pass_signals(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake[0], 4096)
        while self._signals:
            self._link.put(SIGNAL, self._signals.pop(0))

    def _take_side(self) -> None:
        """Interrupts go to the node; a run that waits here is given back here."""
        while (record := self._side.taken()) is not None:
            kind, number, _ = parsed(record)
            if kind != RECALL:
                self._link.put(SIDE, 0, record)
                continue
            self._take_calls()  # it came before
            if any(call[0] == number for call in self._held) and self._side.give_back(number):
                self._returned.add(number)

    def _take_calls(self) -> None:
        connection = self._connection
        connection.flush()
        connection.receive(0)
        while calls := connection.poll_calls(CALLS_AT_ONCE):
            for number, _, head, segments, *_ in calls:
                self._held.append((number, head, segments))

    def _send_calls(self) -> None:
        """Send calls; of a worker that runs one at a time, one, behind the answer to the last.

        If this process is killed, the dispatcher takes the oldest call without an answer for the
        one that had begun.
        """
        while self._held and not (self._one_by_one and (self._sent or self._has_unsent)):
            number, head, segments = self._held.popleft()
            if number in self._returned:
                self._returned.remove(number)
                answers.reply(self._connection, number, (answers.RETURNED, None))
                continue
            method, arguments, _ = self._decode(head)
            is_run = method == "run"
            self._sent[number] = (number_of(arguments[2]), arguments[3]) if is_run else None
            self._link.put(CALL, number, *pack_message(0, head, segments))

    @property
    def _has_unsent(self) -> bool:
        """Whether an answer waits to be sent to the dispatcher."""
        return self._connection.wants()[1]

    # From the node.

    def _take_last(self) -> None:
        """Take what came before the link broke, as sending may have noticed."""
        with contextlib.suppress(Error):
            for record in self._link.take():
                self._take(record)

    def _take(self, record: Record) -> None:
        kind, number, body = record
        if kind == REPLY:
            self._reply(number, body)
        elif kind == SIDE:
            self._side.forward(body)
        elif kind == OUTPUT:
            self._printed = True
            data = memoryview(body)
            while data:
                data = data[os.write(1, data) :]
        elif kind == ITEMS:
            if not self._files.add_items(number, body):
                self._interrupt(number, int.from_bytes(body[:4], "little"))
        elif kind == RESULT:
            self._files.add_result(number, body)
        elif kind == CLIENT:
            self._tunnel.take(number, body)
        elif kind == CREDIT:
            self._tunnel.take_credit(number, *CREDIT_BYTES.unpack(body))
        elif kind == FAILED:
            self._death = {"cause": "unknown", "last_output": body.decode()}
        elif kind == DIED:
            self._death = json.loads(body)

    def _interrupt(self, number: int, attempt: int) -> None:
        """End a run whose items cannot be kept; why is told in the place of its reply."""
        self._link.put(SIDE, 0, interrupt_of(number, attempt))
        self._link.put(SIGNAL, INTERRUPT_SIGNAL)

    def _reply(self, number: int, body: bytes) -> None:
        if self._printed and self._one_by_one:
            # The dispatcher takes what it finds later for the next run's.
            wait_until_read(1)
            self._printed = False
        run = self._sent.pop(number)
        flag, head, segments = unpack_message(body)
        failure = None if run is None else self._files.end(run)
        if failure is not None:
            answers.reply(self._connection, number, answers.failure(failure_of(Unkept(failure))))
        elif flag:
            self._connection.fail(number, 0, head)
        else:
            answers.reply(self._connection, number, (head, segments))
