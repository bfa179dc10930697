"""The calling end of a stream of results, for threads."""

from __future__ import annotations

import contextlib
from time import monotonic
from typing import TYPE_CHECKING, Any

from forebay._core import ItemReader
from forebay.errors import BusyError, Error

if TYPE_CHECKING:
    from types import TracebackType

    from forebay.rpc._channel import Channel

__all__ = ["CREDIT", "Stream"]

CREDIT = 16
"""Items on their way by default: enough to hide a wake-up at each end, few to lose by leaving."""


class Stream:
    """The items of one streaming call, in the order in which the method yields them.

    An iterator and a context manager; made by `Channel.stream`, which sends the call.
    The method is advanced at most `credit` items beyond what was taken, and while less than 2 MiB
    of them wait. Leaving early, by `close`, the end of the `with` block or the last reference,
    cancels the call: what waits is dropped, and the method's generator is closed, so that its
    `finally` runs.

    Thread affinity: none, one thread at a time; a second one gets BusyError.
    """

    __slots__ = ("__weakref__", "_busy", "_channel", "_decode", "_reader", "_ready", "_until")

    def __init__(
        self,
        channel: Channel,
        method: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        *,
        timeout: float | None,
        credit: int,
        generation: int,
    ) -> None:
        self._reader: ItemReader | None = None
        head, segments = channel._encode_call(method, args, kwargs)
        number, connection = channel._number, channel._connection
        self._channel = channel
        self._decode = channel._decode
        self._until = None if timeout is None else monotonic() + timeout
        self._ready: list[Any] = []
        self._busy = False
        self._reader = ItemReader(
            connection, number, head, segments, timeout, generation, credit, False
        )

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Any:
        """Wait for the next item.

        Raises:
            StopIteration: the method has returned, or the stream was closed.
            DeadlineError: the time of the whole stream ran out.
            RemoteError: the method raised; all items before that were given.
            BrokenError: the connection or the peer ended; so were those that had come.
            BusyError: another thread waits for an item.

        After an error the stream is over. Interrupting (Ctrl-C) cancels the call.
        Cost: up to half of `credit` items cross into Python at once; about one system call each
        then, to give credit back.
        """
        if self._until is not None and monotonic() >= self._until:
            self._ready.clear()
        outcome = self._ready.pop() if self._ready else self._receive()
        if type(outcome) is bytes:
            return self._decode(outcome, None)
        return self._channel._finish(outcome)

    def _receive(self) -> Any:
        """Wait for items, and give the first one; at the end raise what the end is."""
        if self._busy:
            raise BusyError(
                f"another thread waits for an item of this stream of {self._channel.name!r};"
                " give each thread a stream of its own"
            )
        reader = self._reader
        if reader is None:
            raise StopIteration
        self._busy = True
        try:
            came = reader.wait()
        except BaseException:
            self._reader = None
            raise
        finally:
            self._busy = False
        if type(came) is list and came:
            self._ready = came
            return came.pop()
        self._reader = None
        if came is not None:
            self._channel._finish(came)  # it raises
        raise StopIteration

    def close(self) -> None:
        """Leave the stream; never waits. Idempotent."""
        reader, self._reader = self._reader, None
        self._ready.clear()
        if reader is not None:
            with contextlib.suppress(Error):  # closed, or another process's after a fork
                reader.leave()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if self._reader is not None:
            self.close()
