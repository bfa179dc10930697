"""The calls of one executor, from their submission to their end.

The thread that submits pickles a call and gives it to the dispatcher. One thread of the executor,
the *collector*, takes ended calls, many at a time, and gives their ends to their owners: futures
and maps. It does not refer to the executor, which can be collected when nobody else does. It ends
after `leave` and the last call, and then ends workers, dispatcher and keeper.

Lock order: `Calls.lock` is the only lock; a thread that holds it waits only for the thread of the
dispatcher. Owners, and callbacks of futures, run outside of it.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from forebay.executor.futures import shutdown
from forebay.executor.futures.answer import CANCELLED, ERROR, RAISED, Owner, answer_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay import _core

CALL = "@call"
"""The dispatcher's name for a call of a function: its arguments go to the worker unread."""

BUSY_CALLS = 64
LINGER_S = 0.0005
"""While more than `BUSY_CALLS` calls wait, the collector takes ended ones every `LINGER_S` seconds.

Each of these calls waits longer than that in any case. Otherwise the collector would be woken for
every call or two, which costs a fifth of the rate on two cores.
"""

_log = logging.getLogger(__name__)


class Calls:
    """Gives calls to a dispatcher, and their ends to their owners.

    Args:
        dispatcher: owned by this object from `start` on.
        options: of every call, in msgpack.
        close: called once, at the end of the collector, when no call is left.

    Attributes:
        lock: held around `begin` and the checks before it.
        broken: why no call can be run any more, or empty.
        leaving: whether the collector ends after the last call; no call begins from then on.
        inherited: whether this is a forked child's copy.
    """

    def __init__(
        self, dispatcher: _core.Dispatcher, options: bytes, close: Callable[[], None]
    ) -> None:
        self.lock = threading.Lock()
        self.broken = ""
        self.leaving = False
        self.inherited = False
        self._dispatcher: _core.Dispatcher | None = dispatcher
        """None once the collector has ended, so that its descriptors are closed."""
        self._options = options
        self._close: Callable[[], None] | None = close
        self._pending: dict[int, Owner] = {}
        self._collector = threading.Thread(target=self._collect, name="forebay-futures")

    def start(self) -> None:
        """Begin to collect, until `leave`."""
        self._collector.start()
        shutdown.add(self)

    def begin(self, owner: Owner, blob: bytes) -> int:
        """Have a call run, and its ticket; `lock` is held, and the checks are done.

        Raises:
            LimitError: too many calls wait.
        """
        assert self._dispatcher is not None, "the collector ends only once nothing begins"
        ticket: int = self._dispatcher.submit(CALL, blob, self._options)
        self._pending[ticket] = owner
        return ticket

    def withdraw(self, ticket: int) -> bool:
        """Take a call back if no worker has begun it; whether so. Its owner gets no end."""
        with self.lock:
            dispatcher = self._dispatcher
            if ticket not in self._pending or dispatcher is None:
                return False
            if not dispatcher.cancel(ticket):
                return False
            del self._pending[ticket]
        dispatcher.wake()  # it may have been the last one
        return True

    def cancel_all(self) -> None:
        """Take every call back that no worker has begun."""
        with self.lock:
            pending = list(self._pending.items())
        for ticket, owner in reversed(pending):  # from the last on, so that none begins meanwhile
            if self.withdraw(ticket):
                owner.put(ticket, CANCELLED, b"")

    def read(self, end: int, payload: Any) -> tuple[bool, Any]:
        """Whether a call has succeeded, and its result or what to raise.

        A failed initializer breaks the executor.
        """
        succeeded, value = answer_of(end, payload)
        reason = getattr(value, "initializer_failed", None) if end == RAISED else None
        if reason is None:
            return succeeded, value
        self.give_up(reason)
        return False, self._broken_error()

    def leave(self) -> None:
        """Have the collector end with the last call; returns at once, and takes no lock."""
        self.leaving = True
        dispatcher = self._dispatcher
        if dispatcher is not None:
            dispatcher.wake()

    def join(self) -> None:
        """Wait until the collector has ended, unless this is it."""
        if threading.current_thread() is not self._collector:
            self._collector.join()

    def give_up(self, reason: str) -> None:
        """Fail every call, and later ones, because no worker can be started, for this reason."""
        with self.lock:
            self.broken = self.broken or reason
            failed = list(self._pending.items())
            self._pending.clear()
        for ticket, owner in failed:
            owner.put(ticket, ERROR, self._broken_error())
        self.leave()

    def _broken_error(self) -> Exception:
        from forebay.executor.futures.errors import BrokenExecutorError

        return BrokenExecutorError(self.broken, delivered="no")

    # The collector.

    def _collect(self) -> None:
        dispatcher, close = self._dispatcher, self._close
        assert dispatcher is not None
        assert close is not None
        try:
            while not self._is_over():
                if not self._take(dispatcher):
                    self.give_up("the dispatcher of this executor was closed")
                elif len(self._pending) > BUSY_CALLS:
                    time.sleep(LINGER_S)
        except BaseException as error:  # a thread's last boundary: owners get an error
            _log.exception("the collector has ended by a fault of its own")
            self.give_up(f"the collector has ended by a fault of its own: {error!r}")
        finally:
            with self.lock:
                self._dispatcher = self._close = None
            close()
            shutdown.discard(self)

    def _is_over(self) -> bool:
        with self.lock:
            return self.leaving and not self._pending

    def _take(self, dispatcher: _core.Dispatcher) -> bool:
        """Wait for calls that have ended and give their ends to their owners; False once closed.

        Nothing here refers to a call after this returns, so that a result is freed when its caller
        drops it.
        """
        ended = dispatcher.finished(None)
        if ended is None:
            return False
        with self.lock:
            owners = [self._pending.pop(ticket, None) for ticket, _, _ in ended]
        for owner, (ticket, end, payload) in zip(owners, ended, strict=True):
            if owner is not None:  # else it was given up
                owner.put(ticket, end, payload)
        return True
