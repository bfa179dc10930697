"""Handlers that answer without the GIL: `listen(url, native=...)` serves them from a Rust thread.

A Python thread that computes, or holds the GIL in a C extension, does not delay them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from forebay._core import NativeHealth, NativeService, NativeStore
from forebay.errors import ConfigError
from forebay.transport._address import Address, parse
from forebay.transport._limits import ConnectionLimits

__all__ = ["Echo", "Forward", "Handler", "Health", "Store", "Table"]

Resolved = Mapping[Address, tuple[str, int]]
"""The IP address and port of each target."""


class Handler:
    """What answers messages natively. One may serve several listeners."""

    __slots__ = ()

    def targets(self) -> Iterable[Address]:
        """The addresses to be resolved before it serves."""
        return ()

    def service(self, resolved: Resolved) -> NativeService:
        """The core of it."""
        raise NotImplementedError


class Echo(Handler):
    """Send each message back as it came."""

    __slots__ = ()

    def service(self, resolved: Resolved) -> NativeService:
        """The core of it."""
        return NativeService.echo()


class Forward(Handler):
    """Pass the messages of each client on to `url`, and what comes back to the client.

    Each client has a connection of its own to the target.
    The marks of both connections hold, so a slow end slows the other one down. When the client has
    sent its last message the target is notified, and may still answer; when the target ends,
    so does the client's connection.

    Args:
        url: `tcp://host:port` or `unix:///path`; a name is resolved once, when the listener opens,
            and its first address is used.
        token: what the target asks for, if it does.
        limits: of the connections to the target.
    """

    __slots__ = ("_address", "_limits", "_token")

    def __init__(
        self, url: str, *, token: str | bytes | None = None, limits: ConnectionLimits | None = None
    ) -> None:
        self._address = parse(url)
        if self._address.scheme not in ("tcp", "unix"):
            raise ConfigError(f"{url}: a target is tcp:// or unix://")
        self._token = token.encode() if isinstance(token, str) else token
        self._limits = limits or ConnectionLimits()

    def targets(self) -> Iterable[Address]:
        """The address to be resolved."""
        return (self._address,) if self._address.scheme == "tcp" else ()

    def service(self, resolved: Resolved) -> NativeService:
        """The core of it."""
        return NativeService.forward(
            address=resolved.get(self._address),
            path=self._address.path or None,
            token=self._token,
            limits=self._limits.of_connection(),
        )


class Store(Handler):
    """Values by key, for any number of readers: weights, batches, files.

    A request is a key, one frame; its answer is the frames of the value, or one empty frame where
    it is missing. A request of several keys is answered by all their frames in one message.
    `put` and `delete` may be called at any time in any thread, whether it serves or not; an answer
    that is on its way stays what it was.
    What it holds is for the program to bound.
    """

    __slots__ = ("_core",)

    def __init__(self) -> None:
        self._core = NativeStore()

    def put(self, key: str | bytes, value: Any, *, copy: bool = True) -> None:
        """Serve `value` under `key` from now on, in place of an earlier value.

        Args:
            key: any bytes; text stands for its UTF-8.
            value: a buffer, or a list or tuple of them: the frames of the answer.
            copy: False references the buffers instead. They must not change until the key was
                deleted or replaced and answers on their way are gone. `bytes` are never copied.

        Raises:
            ConfigError: the value is empty, which stands for a miss.

        Cost: a copy of the value, without the GIL from 64 KiB on.
        """
        self._core.put(_key(key), value, copy)

    def delete(self, key: str | bytes) -> bool:
        """Serve `key` no more; whether it was there."""
        return self._core.delete(_key(key))

    def __contains__(self, key: str | bytes) -> bool:
        return _key(key) in self._core

    def __len__(self) -> int:
        return len(self._core)

    def metrics(self) -> dict[str, int]:
        """How many values there are, and how often a key was asked for: `hits`, `misses`."""
        return self._core.metrics()

    def service(self, resolved: Resolved) -> NativeService:
        """The core of it."""
        return NativeService.store(self._core)


class Health(Handler):
    """Answer any message with two frames: the status, and what was counted, as JSON.

    The JSON has `connections`, `messages`, `uptime_s` and `status_age_s`. The answer comes also
    while Python hangs, so call `set` regularly and have clients compare `status_age_s`.
    """

    __slots__ = ("_core",)

    def __init__(self, status: str = "ok") -> None:
        self._core = NativeHealth(status)

    def set(self, status: str) -> None:
        """Tell `status` from now on, and that it was said now. Any thread."""
        self._core.set(status)

    @property
    def status(self) -> str:
        """The status that is served."""
        return self._core.status

    def service(self, resolved: Resolved) -> NativeService:
        """The core of it."""
        return NativeService.health(self._core)


class Table(Handler):
    """Handlers by name: the first frame of each message names one, which gets the other frames.

    A message that names none of them gives its connection to the Python handler of `listen`, which
    receives that message and all later ones whole; a connection never comes back. Without a Python
    handler it is answered by one empty frame.
    A `Forward` keeps its connection too: it gets the rest of the message that names it, where there
    is one, and later messages as they are.

    Args:
        handlers: by name, any bytes; text stands for its UTF-8.
    """

    __slots__ = ("_handlers",)

    def __init__(self, handlers: Mapping[str | bytes, Handler]) -> None:
        self._handlers = {_key(name): handler for name, handler in handlers.items()}
        for name, handler in self._handlers.items():
            if isinstance(handler, Table):
                raise ConfigError(f"the table has a table under {name!r}; give one table")

    def targets(self) -> Iterable[Address]:
        """The addresses to be resolved."""
        return [target for handler in self._handlers.values() for target in handler.targets()]

    def service(self, resolved: Resolved, *, hands_over: bool = False) -> NativeService:
        """The core of it."""
        services = {name: handler.service(resolved) for name, handler in self._handlers.items()}
        return NativeService.table(services, hands_over)


def _key(key: str | bytes) -> bytes:
    return key.encode() if isinstance(key, str) else key
