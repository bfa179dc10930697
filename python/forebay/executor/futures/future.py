"""The future of one call."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from forebay.executor.futures.answer import CANCELLED

if TYPE_CHECKING:
    from forebay.executor.futures.calls import Calls

T = TypeVar("T")


class CallFuture(Future[T]):
    """A `concurrent.futures.Future` whose call waits in a dispatcher.

    Nothing reports when a worker begins a call, so a future is pending until it has ended; `cancel`
    asks the dispatcher.
    """

    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self.ticket = 0
        self._calls: Calls | None = calls

    def cancel(self) -> bool:
        """Take the call back if no worker has it; whether it is cancelled.

        A call that runs, or that was handed to a worker to be its next, is left alone. Cost: a
        question to the dispatcher's thread.
        """
        calls = self._calls
        if calls is None:
            return super().cancel()
        if not calls.withdraw(self.ticket):
            return self.cancelled()
        self._forgo()
        return True

    def put(self, ticket: int, end: int, payload: Any) -> None:
        """End it with the end of its call."""
        calls, self._calls = self._calls, None
        if end == CANCELLED or calls is None:
            self._forgo()
            return
        succeeded, value = calls.read(end, payload)
        if succeeded:
            self.set_result(value)
        else:
            self.set_exception(value)

    def _forgo(self) -> None:
        """End it as cancelled: its call was taken back."""
        self._calls = None
        super().cancel()
        self.set_running_or_notify_cancel()
