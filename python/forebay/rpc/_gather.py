"""Calls on several channels at once: all are begun, then one thread waits for all of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from forebay import _core
from forebay.errors import BusyError, ConfigError, DeadlineError
from forebay.rpc._channel import Channel
from forebay.rpc._codec import Segments, by_name

__all__ = ["Gather", "Message", "message"]

Message = tuple[bytes, Segments]
"""An encoded call: its head, and what travels beside it."""

_PICKLE = by_name("pickle")
_NOTHING, _ = _PICKLE.encode(None)
"""The answer of a method that returns nothing."""


def message(
    method: str, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
) -> Message:
    """Encode a call, which may then be sent any number of times, to any channel."""
    return _PICKLE.encode_call(method, args, kwargs)


class Gather:
    """Begins one call on each of some channels, and waits for all of them without the GIL.

    Between `begin` and `finish` other threads may call on the same channels.

    Args:
        channels: distinct ones, all of codec "pickle" and bound to no loop.
        generations: of the lease that calls, one for each channel.

    Raises:
        ConfigError: a channel speaks another codec.
        BusyError: a channel is bound to an event loop.

    Thread affinity: none, one thread at a time.
    """

    __slots__ = ("_begun", "_channels", "_connections", "_deadline", "_generations", "_timeout")

    def __init__(self, channels: Sequence[Channel], generations: Sequence[int]) -> None:
        for channel in channels:
            if channel._codec is not _PICKLE:
                raise ConfigError(f"channel {channel.name!r} speaks {channel._codec.name}")
            if channel._bound:
                raise BusyError(f"channel {channel.name!r} is bound to an event loop; unbind() it")
        self._channels = list(channels)
        self._connections = [channel._connection for channel in channels]
        self._generations = list(generations)
        self._begun: list[Any] = []
        self._timeout: float | None = None
        self._deadline: float | None = None

    def begin(self, messages: list[Message], *, timeout: float | None = None) -> None:
        """Begin one call on each channel, in their order; never waits.

        Args:
            messages: one for each channel, from `message`.
            timeout: seconds from now until all answers; the servers get what remains.

        Raises:
            BusyError: the calls begun before have not been finished.
        """
        if self._begun:
            raise BusyError("calls are under way; finish() them first")
        self._timeout = timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._begun = _core.begin_all(
            self._connections, _PICKLE.number, messages, self._generations, timeout
        )

    def finish(
        self, *, timeout: float | None = None, look: bool = False
    ) -> tuple[list[Any], dict[int, BaseException]]:
        """Wait for the answers.

        Args:
            timeout: seconds from now; the time that `begin` allowed ends it too.
            look: the answers are expected within some 100 us: poll for them before sleeping.

        Returns:
            What each call returned, None where it failed; and the errors, by the number of the
            call: those that `Channel.call` raises. A call whose time ran out has been cancelled.

        Interrupting (Ctrl-C) cancels every call; nothing is known of any of them then.
        Cost: about two system calls for each channel here, and few switches of the core: the
        thread sleeps until the last answer rather than waking for each.
        """
        begun: list[Any]
        begun, self._begun = self._begun, []
        connections = self._connections
        ids: list[int] = begun
        indexes: Sequence[int] = range(len(begun))
        errors = {index: call for index, call in enumerate(begun) if type(call) is not int}
        if errors:
            indexes = [index for index in indexes if index not in errors]
            connections = [connections[index] for index in indexes]
            ids = [begun[index] for index in indexes]
        allowed = self._left(timeout)
        try:
            outcomes = _core.gather_all(connections, _PICKLE.number, ids, allowed, look)
        except BaseException:
            for connection, call in zip(connections, ids, strict=True):
                connection.cancel(call)
            raise
        results: list[Any] = [None] * len(begun)
        for index, call, outcome in zip(indexes, ids, outcomes, strict=True):
            if outcome == _NOTHING:
                continue
            if outcome is None:
                self._connections[index].cancel(call)
                errors[index] = self._too_late(index, timeout)
                continue
            try:
                results[index] = self._channels[index]._finish(outcome)
            except Exception as error:
                errors[index] = error
        return results, errors

    def _left(self, timeout: float | None) -> float | None:
        if self._deadline is None:
            return timeout
        left = max(0.0, self._deadline - time.monotonic())
        return left if timeout is None else min(left, timeout)

    def _too_late(self, index: int, timeout: float | None) -> DeadlineError:
        limits = [limit for limit in (timeout, self._timeout) if limit is not None]
        allowed = min(limits, default=0.0)
        return DeadlineError(
            f"{self._channels[index].name}: no answer within {allowed:g} s", timeout=allowed
        )
