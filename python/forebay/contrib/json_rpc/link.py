"""A JSON-RPC conversation over a socket that any thread, or one event loop at a time, steps.

One of the waiting threads reads, for itself and for all others. No thread holds the lock while it
waits.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from forebay.contrib.json_rpc.session import Answer, Notification, Request, Session
from forebay.errors import BrokenError, ClosedError, LimitError, ProtocolError
from forebay.pool._internal import Deadline

if TYPE_CHECKING:
    import asyncio

OnNotification = Callable[[str, Any], None]

READ_BYTES = 256 * 1024

REFUSED_BYTES_MAX = 64 * 1024
"""Refusals of a program's requests that may be queued while it sends more.

They are queued once its socket is full; the requests of one read (`READ_BYTES`) are all answered.
"""

_log = logging.getLogger(__name__)


class Waiter:
    """A caller that waits for one answer."""

    __slots__ = ("answer", "future", "number")

    def __init__(self, number: int, future: asyncio.Future[None] | None) -> None:
        self.number = number
        self.future = future
        self.answer: Answer | None = None


class JsonRpcLink:
    """The conversation with one program, kept between leases.

    Lock order: `_turn` alone; it guards every attribute, and is never held while waiting.
    """

    def __init__(self, stream: socket.socket, on_notification: OnNotification | None) -> None:
        # A copy: what belongs to the service is closed with it, whatever is registered here.
        self._socket = socket.socket(fileno=os.dup(stream.fileno()))
        self._socket.setblocking(False)
        self._session = Session()
        self._waiters: dict[int, Waiter] = {}
        self._outbox = bytearray()
        self._sent = 0  # bytes, since the beginning
        self._refusals: deque[tuple[int, int]] = deque()
        """Refusals in the outbox: where each ends, counted as `_sent`, and its bytes."""
        self._refused_bytes = 0  # of them
        self._turn = threading.Condition(threading.Lock())
        self._reading = False
        self._on_notification = on_notification
        self._loop: asyncio.AbstractEventLoop | None = None
        self.fault: BaseException | None = None
        """Why it can be used no more."""
        self.dirty = False
        """Whether an answer may come that no caller waits for."""

    def reusable(self) -> bool:
        """Whether the program may be lent on; also unbinds the event loop."""
        self.unbind()
        return not (self.dirty or self.fault or self._session.waiting or self._outbox)

    def close(self) -> None:
        """Close it; waiting callers get ClosedError. From any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed() and loop is not _running():
            try:
                loop.call_soon_threadsafe(self._close)
            except RuntimeError:
                self._close()
            return
        self._close()

    def _close(self) -> None:
        self.unbind()
        self._break(ClosedError("the program of this client was ended"))
        self._socket.close()

    # Sending.

    def begin(
        self,
        method: str,
        args: tuple[Any, ...],
        params: dict[str, Any],
        future: asyncio.Future[None] | None = None,
    ) -> Waiter:
        """Send a call as far as the program takes it; the reading thread sends the rest."""
        with self._turn:
            self._check()
            number, line = self._session.begin(method, args, params)
            waiter = self._waiters[number] = Waiter(number, future)
            self._outbox += line
        self.flush()
        return waiter

    def notify(self, method: str, args: tuple[Any, ...], params: dict[str, Any]) -> None:
        """Send a notification as far as the program takes it."""
        with self._turn:
            self._check()
            self._outbox += self._session.notification(method, args, params)
        self.flush()

    def flush(self) -> bool:
        """Send what is queued, without waiting. True if nothing is left."""
        with self._turn:
            while self._outbox and self.fault is None:
                try:
                    sent = self._socket.send(self._outbox)
                except (BlockingIOError, InterruptedError):
                    break
                except OSError as error:
                    self._break_locked(_broken(error))
                    break
                del self._outbox[:sent]
                self._sent += sent
            while self._refusals and self._refusals[0][0] <= self._sent:
                self._refused_bytes -= self._refusals.popleft()[1]
            if self._loop is not None:
                self._watch_writing()
            return not self._outbox

    def _check(self) -> None:
        if self.fault is not None:
            raise self.fault

    # Receiving.

    def receive(self) -> None:
        """Read without waiting, and hand the messages on."""
        try:
            data = self._socket.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._break(_broken(error))
            return
        if not data:
            self._break(BrokenError("the program closed its stdout"))
            return
        self.flush()  # so that answers which it has read do not count
        notifications: list[Notification] = []
        with self._turn:
            try:
                self._expect_reading()
                for message in self._session.feed(data):
                    self._take(message, notifications)
            except (ProtocolError, LimitError) as error:
                self._break_locked(error)
            self._turn.notify_all()
        for method, params in notifications:
            self._notify(method, params)

    def _take(
        self, message: Answer | Notification | Request, notifications: list[Notification]
    ) -> None:
        if isinstance(message, Notification):
            notifications.append(message)
        elif isinstance(message, Request):
            self._refuse(message.refusal)
        else:
            waiter = self._waiters.pop(message.call, None)
            if waiter is not None:
                waiter.answer = message
                _wake(waiter)

    def _refuse(self, refusal: bytes) -> None:
        """Refuse a request of the program; sent with the next call, or by the reading thread."""
        self._outbox += refusal
        self._refused_bytes += len(refusal)
        self._refusals.append((self._sent + len(self._outbox), len(refusal)))

    def _expect_reading(self) -> None:
        """Refuse more requests of a program that does not read its answers."""
        if self._refused_bytes > REFUSED_BYTES_MAX:
            raise LimitError(
                f"the program asks without reading its answers: {self._refused_bytes} bytes of them"
                f" wait, the limit is {REFUSED_BYTES_MAX} (REFUSED_BYTES_MAX)",
                limit=REFUSED_BYTES_MAX,
                value=self._refused_bytes,
            )

    def _notify(self, method: str, params: Any) -> None:
        if self._on_notification is None:
            return
        try:
            self._on_notification(method, params)
        except Exception:
            _log.warning("the callback for notification %r raised", method, exc_info=True)

    def _break(self, error: BaseException) -> None:
        with self._turn:
            self._break_locked(error)

    def _break_locked(self, error: BaseException) -> None:
        if self.fault is None:
            self.fault = error
        waiters = list(self._waiters.values())
        self._waiters.clear()
        for waiter in waiters:
            _wake(waiter)
        self._turn.notify_all()

    def leave(self, waiter: Waiter) -> None:
        """Stop waiting for an answer; it may still come, so the program is dirty."""
        with self._turn:
            if waiter.answer is None:
                self.dirty = True
                self._waiters.pop(waiter.number, None)

    # The blocking face.

    def wait(self, waiter: Waiter, deadline: Deadline) -> Answer:
        """Wait in this thread for an answer.

        Raises:
            TimeoutError: it did not come in time.
            BrokenError, LimitError, ClosedError: the conversation broke.
        """
        while True:
            with self._turn:
                if waiter.answer is not None:
                    return waiter.answer
                self._check()
                if deadline.passed():
                    raise TimeoutError
                leads = not self._reading
                if not leads and not self._outbox:
                    self._turn.wait(deadline.left())
                    continue
                self._reading = self._reading or leads
            try:
                self._step(leads, deadline)
            finally:
                if leads:
                    with self._turn:
                        self._reading = False
                        self._turn.notify_all()  # another thread reads on

    def _step(self, leads: bool, deadline: Deadline) -> None:
        """Wait for something to read, where this thread leads, or for room to write."""
        events = (select.POLLIN if leads else 0) | (select.POLLOUT if self._outbox else 0)
        if not events:
            return  # the thread that leads has sent the rest, and may have taken this one's answer
        poll = select.poll()
        poll.register(self._socket, events)
        left = deadline.left()
        fired = poll.poll(None if left is None else left * 1000 + 1)
        if fired and fired[0][1] & ~select.POLLOUT and leads:
            self.receive()
        self.flush()

    # The asyncio face.

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read on a loop from now on, until `unbind`."""
        if self._loop is loop:
            return
        self.unbind()
        self._loop = loop
        loop.add_reader(self._socket.fileno(), self._readable)
        self.flush()

    def unbind(self) -> None:
        """Stop reading on the loop. In its thread, or after its end."""
        loop, self._loop = self._loop, None
        if loop is not None and not loop.is_closed() and self._socket.fileno() >= 0:
            loop.remove_reader(self._socket.fileno())
            loop.remove_writer(self._socket.fileno())

    def _readable(self) -> None:
        self.receive()
        if self.fault is not None:
            self.unbind()
        else:
            self.flush()

    def _watch_writing(self) -> None:
        assert self._loop is not None
        if self._outbox and self.fault is None:
            self._loop.add_writer(self._socket.fileno(), self.flush)
        else:
            self._loop.remove_writer(self._socket.fileno())


def _broken(error: OSError) -> BrokenError:
    return BrokenError(f"the conversation with the program broke: {error}")


def _wake(waiter: Waiter) -> None:
    if waiter.future is not None and not waiter.future.done():
        waiter.future.set_result(None)


def _running() -> asyncio.AbstractEventLoop | None:
    import asyncio

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
