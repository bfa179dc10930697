"""A request that was submitted, as the program that submitted it sees it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from forebay._failures import failure_error
from forebay.errors import BrokenError, DeadlineError, Error, RemoteError
from forebay.executor.client.follow import Progress, events, log_bytes, text_of
from forebay.executor.client.items import Items, ItemsFollowing
from forebay.executor.client.links import not_accepted, ran_out
from forebay.executor.client.result_file import file_of
from forebay.executor.wire.frames import message, returned, value_of
from forebay.executor.wire.parts import decode_result

if TYPE_CHECKING:
    from forebay.executor.client.client import Client
    from forebay.executor.client.outstanding import Sent

__all__ = ["Request"]

_UNSET: Any = object()

SHOWN_WAIT_S: Final = 1.0
"""The longest wait for a server's answer before a notebook shows a request without it."""


class Request:
    """One request of a server; made by `Client.submit` and `Client.get`.

    It is a handle: when it goes out of use, the request goes on.

    Thread affinity: none.

    Attributes:
        name: of the request's definition; empty where it was found by its id.
    """

    __slots__ = (
        "__weakref__",
        "_client",
        "_error",
        "_id",
        "_item_type",
        "_sent",
        "_status",
        "_told",
        "_type",
        "_value",
        "name",
    )

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
        self._status: str | None = None
        self._told: str | None = None  # its end, where the result is still to come
        self._value: Any = _UNSET
        self._error: Error | None = None
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
            ConfigError, LimitError: it was refused. BrokenError: the server went away before it
            said so. DeadlineError: `timeout` ran out.
        """
        if self._id is None:
            if self._error is not None:
                raise self._error
            assert self._sent is not None  # without one there is an id from the beginning
            try:
                self._id = self._client._outstanding.accepted(self._sent, timeout)
            except DeadlineError:
                raise not_accepted(self.name, timeout) from None
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
            LimitError: it succeeded, and its result was removed before it was read; it names
                `retention_bytes`.
            BrokenError: the server is gone and did not come back within the client's time.

        A server that is started again meanwhile goes on with it, and so does this.
        Cost: where many are in flight, their ends are read with one system call.
        """
        if self._status is None:
            self._wait(timeout)
        if self._error is not None:
            raise self._error
        return self._value

    def watch(self, timeout: float | None = None) -> Any:
        """Wait as `result` does, while its output and its progress are shown here.

        In a notebook the progress is a bar that is updated in place, elsewhere a line on stderr for
        each tenth of the work, or each 30 seconds.

        Args:
            timeout: seconds; past them the request goes on, and may be waited for again.

        Raises:
            what `result` raises.

        Interrupting leaves the request running; the exception has a note that says how to go on.
        Cost: a connection and two threads, until it returns.
        """
        until = None if timeout is None else time.monotonic() + timeout
        if self._status is None:
            from forebay.executor.client.watch import watch

            try:
                watch(self, timeout)
            except KeyboardInterrupt as interrupt:
                interrupt.add_note(self._goes_on())
                raise
        return self.result(None if until is None else max(0.0, until - time.monotonic()))

    def exception(self, timeout: float | None = None) -> Error | None:
        """Wait for its end, and return what `result` would raise; None where it succeeded.

        Raises:
            DeadlineError: `timeout` ran out. BrokenError: as of `result`.
        """
        if self._status is None:
            self._wait(timeout)
        return self._error

    def status(self) -> str:
        """What it is now: queued, running, succeeded, failed, cancelled or dead.

        Also "refused", which it was before it was accepted, and "unknown", where the server went
        away before it said.
        """
        if self._status is not None:
            return self._status
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
        self._sent, self._status, self._error, self._value = None, None, None, _UNSET
        self._told = None

    def logs(self, *, follow: bool = True, offset: int = 0) -> Iterator[str]:
        """What it wrote to stdout and stderr, as it is written.

        Args:
            follow: go on until it ends; else what there is now.
            offset: bytes to leave out.

        Yields:
            Text, in pieces as they come; what is no UTF-8 is replaced.

        Leaving the loop, or closing the iterator, ends the stream and nothing else.
        """
        return text_of(log_bytes(self._client, self.id, follow=follow, offset=offset))

    def items(self, after: int = 0, *, epoch: int | None = None, follow: bool = True) -> Items:
        """What it yields, as it is yielded, where its function is a generator.

        Args:
            after: the number of the last item that you had; 0: from the first.
            epoch: of that item. A request that is run again begins a new epoch with item 1.
            follow: go on until it ends; else what there is now.

        Returns:
            An iterator, which knows `number` and `epoch` of the item that it gave last. It goes on
            by itself when the server comes back. It raises StaleError once where the request has
            begun again, and after the last item what `result` raises where it did not end well.

        Raises:
            ConfigError: its function is no generator.

        Any number of readers may read, at any time until the request is pruned. None of them holds
        up the generator: what they have not read is on disk.
        """
        wanted = (self.name, self._item_type, after, epoch)
        return Items(self, ItemsFollowing(*wanted, follow=follow))

    def events(self) -> Iterator[dict[str, Any]]:
        """Changes of its status, its progress and the reasons why it waits, until it ends.

        The first ones tell how it stands. It goes on behind the last one when the server comes
        back; `{"event": "gap", "first", "last"}` says that some were missed.
        """
        return events(self._client, self.id)

    def progress(self) -> Iterator[Progress]:
        """What `ctx.progress` told, as it is told, until the request ends."""
        return (Progress.of(event) for event in self.events() if event.get("event") == "progress")

    def __repr__(self) -> str:
        id_ = self._id or (self._sent and self._sent.id) or "not yet known"
        return f"<Request {id_} {self.name} {self._status or ''}".rstrip() + ">"

    def __del__(self) -> None:
        if self._sent is not None:
            self._client._outstanding.drop(self._sent)

    def _blocking(self) -> AbstractContextManager[None]:
        """Entered while an item of it is waited for."""
        return nullcontext()

    def _repr_html_(self) -> str:
        """What a notebook shows: what the server knows, if it answers within a second.

        A server that is gone is not waited for, nor started again.
        """
        from forebay.executor.client.shown import request_table

        known: dict[str, Any] = {"id": self._id, "name": self.name, "status": self._status}
        channel = self._client._links.current
        with contextlib.suppress(Error):
            if self._id is not None and channel is not None:
                told = channel.call("status", (self._id,), timeout=SHOWN_WAIT_S)
                known |= returned(value_of(told, channel.name))
        return request_table(known)

    def _wait(self, timeout: float | None) -> None:
        """Learn its end; an interrupt says that the request goes on, and how to wait again."""
        try:
            self._learn_end(timeout)
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(self._goes_on())
            raise

    def _goes_on(self) -> str:
        id_ = self._id or (self._sent and self._sent.id)
        if not id_:
            return f"request {self.name!r} may have been accepted; to see: client.list()"
        from forebay.executor.client.display import going_on

        return going_on(id_)

    def _learn_end(self, timeout: float | None) -> None:
        """Learn its end; raises where it is not known whether it has one."""
        until = None if timeout is None else time.monotonic() + timeout
        while self._status is None:
            sent = self._sent
            if sent is None:
                sent = self._sent = self._ask(whole=False)
            left = None if until is None else max(0.0, until - time.monotonic())
            try:
                answer = self._client._outstanding.finish(sent, left)
            except (DeadlineError, BrokenError) as error:
                if not ran_out(error, until):
                    raise
                raise self._late(sent, timeout) from None
            try:
                _, self._id, status, payload = value_of(answer, sent.channel.name)
            except Error as refused:
                self._refuse(sent, refused)
            else:
                self._learn(sent, status, payload)
            # Last: until here a Ctrl-C leaves the answer to the next call.
            if self._sent is sent:
                self._sent = None

    def _ask(self, *, whole: bool) -> Sent:
        """Send the question for its end; `whole`: with the result, wherever that lies."""
        frame = message("wait", (self._id, True) if whole else (self._id,))
        channel = self._client._channel()
        return self._client._outstanding.send(channel, frame, 0, repeatable=True, id_=self._id)

    def _late(self, sent: Sent, timeout: float | None) -> DeadlineError:
        called = sent.id or self.name
        if self._told is not None:
            text = f"the result of request {called} has not come within {timeout:g} s; ask again"
        else:
            text = (
                f"request {called} has not ended within {timeout:g} s; it goes on: wait again, or"
                " cancel() it"
            )
        return DeadlineError(text, timeout=timeout)

    def _refuse(self, sent: Sent, refused: Error) -> None:
        """Take in why it has no end, or why its result cannot be had."""
        if self._told is not None and isinstance(refused, BrokenError):
            self._sent = None  # the result may be there: the next call asks again
            raise refused
        maybe = isinstance(refused, BrokenError) and refused.delivered != "no"
        self._error = refused
        # One that ended well was pruned meanwhile.
        self._status = self._told or ("unknown" if maybe else "refused")

    def _learn(self, sent: Sent, status: str, payload: Any) -> None:
        """Take its end in, or ask for the result where that did not come with it."""
        assert self._id is not None  # it stands beside the status
        file = payload if type(payload) is list else None
        if file is not None:
            path, size = file
            payload = file_of(path, size, self._id)
        if payload is None:
            self._told = status
            if self._sent is sent:  # else another thread has asked
                self._sent = self._ask(whole=True)
            return
        if status == "succeeded":
            try:
                self._value = decode_result(payload, self._type, self.name)
            except RemoteError as error:
                self._error = error
        else:
            self._error = failure_error(self._id, payload)
        self._status = status
        if file is not None:
            self._client._links.tell_taken(self._id)
