"""A request that was submitted, as the program that submitted it sees it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from forebay_client.calls import End
from forebay_client.errors import BrokenError, DeadlineError, Error
from forebay_client.items import Items, ItemsFollowing
from forebay_client.progress import Progress

if TYPE_CHECKING:
    from forebay_client.client import Client
    from forebay_client.outbox import Sent

__all__ = ["Request", "end_of_refusal"]


class Request:
    """One request of a server; made by `Client.submit` and `Client.get`.

    It is a handle: when it goes out of use, the request goes on.

    Threads: any.

    Attributes:
        name: of the request's definition; empty where it was found by its id.
    """

    __slots__ = ("_client", "_end", "_id", "_item_type", "_sent", "_type", "name")

    def __init__(
        self,
        client: Client,
        sent: Sent | None,
        id_: str | None,
        name: str,
        type_: Any,
        item_type: Any = Any,
    ) -> None:
        self._client = client
        self._sent = sent
        self._id = id_
        self._type = type_
        self._item_type = item_type
        self._end: End | None = None
        self.name = name

    @property
    def id(self) -> str:
        """Its id; waits as `accepted` where the request was sent by `submit_nowait`."""
        return self.accepted() if self._id is None else self._id

    def accepted(self, timeout: float | None = None) -> str:
        """Wait until the request is on disk, and return its id.

        Args:
            timeout: seconds; past them the submission goes on, and may be waited for again.

        Raises:
            ConfigError, LimitError: it was refused. BrokenError: the gateway was away for the
            client's time. DeadlineError: `timeout` ran out.
        """
        if self._id is None:
            assert self._sent is not None  # without one there is an id from the beginning
            self._id = self._client.outbox.id_of(self._sent, timeout)
            self._sent = None
        return self._id

    def result(self, timeout: float | None = None) -> Any:
        """Wait for its end, and return what the function returned.

        Args:
            timeout: seconds; past them the request goes on, and may be waited for again.

        Raises:
            DeadlineError: `timeout` ran out, or the request ran longer than it may.
            RemoteError: the function raised; also an instance of the builtin that it raised.
            DiedError: its worker died: `.cause`, `.exit_code`, `.signal`, `.peak_bytes`, ...
            CancelledError: it was cancelled.
            ConfigError, LimitError: it was refused, and never accepted.
            LimitError: it succeeded, and its result was removed before it was read.
            BrokenError: the gateway is gone and did not come back within the client's time.
        """
        end = self._wait(timeout)
        if end.error is not None:
            raise end.error
        return end.value

    def exception(self, timeout: float | None = None) -> Error | None:
        """Wait for its end, and return what `result` would raise; None where it succeeded.

        Raises:
            DeadlineError: `timeout` ran out. BrokenError: as of `result`.
        """
        return self._wait(timeout).error

    def status(self) -> str:
        """What it is now: queued, running, succeeded, failed, cancelled or dead.

        Also "refused", which it was before it was accepted, and "unknown", where the gateway went
        away before it said.
        """
        if self._end is not None:
            return self._end.status
        status: str = self._client.ask("status", self.id)["status"]
        return status

    def show(self) -> dict[str, Any]:
        """Everything that the server knows about it, with the names of `forebay show --json`."""
        known: dict[str, Any] = self._client.ask("show", self.id)
        return known

    def why(self) -> dict[str, Any]:
        """Why it waits, is slow or died: the decisions with their numbers, and the next step."""
        told: dict[str, Any] = self._client.ask("why", self.id)
        return told

    def cancel(self) -> str:
        """Cancel it; returns "now", "asked" (its code is being interrupted) or "ended".

        The code gets an exception, then SIGTERM, then SIGKILL; a queued one never begins.
        """
        answer: str = self._client.ask("cancel", self.id)
        return answer

    def retry(self) -> None:
        """Queue it again after it failed, was cancelled or was set aside.

        Raises:
            ConfigError: it is not in such a state.
        """
        self._client.retry([self.id])
        self._end = None

    def logs(self, *, follow: bool = True, offset: int = 0) -> Iterator[str]:
        """What it wrote to stdout and stderr, as it is written.

        Args:
            follow: go on until it ends; else what there is now.
            offset: bytes to leave out.

        Yields:
            Text, in pieces as they come; what is no UTF-8 is replaced.

        Leaving the loop, or closing the iterator, ends the stream and nothing else. Where the
        connection breaks it goes on where it was.
        """
        calls, id_ = self._client.calls, self.id
        if follow:
            return self._client.stream(calls.follow_log(id_, offset))
        return iter([text for text in [self._client.perform(calls.log(id_, offset))] if text])

    def items(self, after: int = 0, *, epoch: int | None = None, follow: bool = True) -> Items:
        """What it yields, as it is yielded, where its function is a generator.

        Args:
            after: the number of the last item that you had; 0: from the first.
            epoch: of that item. A request that is run again begins a new epoch with item 1.
            follow: go on until it ends; else what there is now.

        Returns:
            An iterator, which knows `number` and `epoch` of the item that it gave last. It goes on
            behind that item where the connection breaks. It raises StaleError once where the
            request has begun again, and after the last item what `result` raises where it did not
            end well.

        Raises:
            ConfigError: its function is no generator.

        Any number of readers may read, at any time until the request is pruned. None of them holds
        up the generator: what they have not read is on the server's disk.
        """
        wanted = (self.name, self._item_type, after, epoch)
        return Items(self, ItemsFollowing(*wanted, follow=follow))

    def events(self) -> Iterator[dict[str, Any]]:
        """What happens to it, until it has ended; it goes on behind the last one after a break.

        Yields:
            `{"event": "status", "status", "attempt"}`, "progress" and "reason"; the first ones tell
            how it stands. `{"event": "gap", "first", "last"}` says that some were missed.
        """
        return self._client.stream(self._client.calls.events(self.id))

    def progress(self) -> Iterator[Progress]:
        """What `ctx.progress` told, as it is told, until the request ends."""
        return (Progress.of(event) for event in self.events() if event.get("event") == "progress")

    def __repr__(self) -> str:
        status = "" if self._end is None else self._end.status
        return f"<Request {self._id or 'not yet known'} {self.name} {status}".rstrip() + ">"

    def _wait(self, timeout: float | None) -> End:
        if self._end is None:
            try:
                id_ = self.accepted(timeout)
            except DeadlineError:
                raise
            except Error as refused:
                self._end = end_of_refusal(refused)
            else:
                procedure = self._client.calls.end(id_, self.name, self._type, timeout)
                self._end = self._client.perform(procedure)
        return self._end


def end_of_refusal(refused: Error) -> End:
    """The end of a request that was not accepted, or of which that is not known."""
    maybe = isinstance(refused, BrokenError) and refused.delivered != "no"
    return End("unknown" if maybe else "refused", None, refused)
