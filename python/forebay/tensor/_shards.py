"""Connections to the shards of a server, for threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forebay import _core
from forebay.errors import (
    BrokenError,
    ClosedError,
    DeadlineError,
    Error,
    LimitError,
    StaleError,
)
from forebay.tensor import _verbs
from forebay.tensor._ref import Book, too_restless
from forebay.transport import connect

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.config import TensorConfig
    from forebay.memory import Arena
    from forebay.tensor._work import Work
    from forebay.transport import Tls

__all__ = [
    "NAMES_MAX",
    "RESTARTS_MAX",
    "SETTING_UP",
    "Settings",
    "Shards",
    "alive",
    "made",
    "summed",
]

NAMES_MAX = 256
"""Names in one request."""

SETTING_UP = "while tensors were set up; a server that asks for another token closes the connection"
"""The note of an error before there was a connection to use."""

RESTARTS_MAX = 8
"""How often a call is made ready again because a shard was started anew meanwhile."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What connections are made with."""

    urls: list[str]
    config: TensorConfig
    tls: Tls | None
    token: str | bytes | None
    arena: Arena | None = None

    def connect(self, shard: int, timeout: float | None) -> Any:
        """A connection of the transport to be."""
        limit = self.config.connect_timeout
        timeout = limit if timeout is None else min(limit, timeout)
        return connect(self.urls[shard], tls=self.tls, token=self.token, timeout=timeout)

    def hello(self) -> bytes:
        """What a client says first."""
        config = self.config
        return _core.tensor_hello(
            config.slots,
            shared_memory=config.fabric == "auto",
            verbs=config.fabric != "stream",
        )

    def link(self, connection: Any, welcome: Any) -> _core.TensorLink:
        """Make the connection one of tensors, whose welcome came."""
        config = self.config
        return _core.TensorLink(
            connection._core,
            welcome,
            piece_bytes=config.piece_bytes,
            waiting_max=config.waiting_max,
            liveness=config.liveness,
        )


class Shards:
    """The connections that threads and futures of one client share, made on first use.

    A connection that is found dead before it is used is made anew, silently: nothing was asked.

    Attributes:
        near: the connection to the one shard there is, once it reads that one's memory.

    Threads: any.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.book = Book(settings.urls)
        self.near: _core.TensorLink | None = None
        self._links: list[_core.TensorLink | None] = [None] * len(settings.urls)
        self._locks = [threading.Lock() for _ in settings.urls]
        self._closed = False
        self._forked = False

    def link(self, shard: int, timeout: float | None = None) -> _core.TensorLink:
        """A connection to a shard that may be used.

        Raises:
            BrokenError, ProtocolError, ConfigError: nobody there lets us in.
            DeadlineError: not in time.
            ClosedError, StaleError: the client is closed, or a parent's.
        """
        link = self._links[shard]
        if link is not None and alive(link):
            return link
        self._refuse_over()
        with self._locks[shard]:
            link = self._links[shard]
            if link is None or not alive(link):
                # Not closed: what is outstanding there is to end with what it broke of.
                self._links[shard] = None
                link = self._open(shard, timeout)
                if self._closed:
                    link.close()
                    self._refuse_over()
                self.book.connected(shard, link.incarnation)
                self._links[shard] = link
                # Last: whoever finds it finds handles of this run of the shard, or none.
                is_near = len(self._links) == 1 and link.fabric == "shm"
                self.near = link if is_near else None
            return link

    def ready(
        self, make: Callable[[Book], Work], timeout: float | None
    ) -> tuple[Work, dict[int, _core.TensorLink]]:
        """Make a call ready, with names looked up and the connections that it needs.

        Raises:
            As `link`, as `make`, and as looking up.
        """
        book = self.book
        for _ in range(RESTARTS_MAX):
            work = made(make, book, self._links)
            if work.missing:
                self._look_up(sorted(set(work.missing)), timeout)
                continue
            links = {shard: self.link(shard, timeout) for shard in work.parts}
            if work.epoch == book.epoch:
                return work, links
        raise too_restless(self.settings.urls)

    def names(self, tensor: str, timeout: float | None) -> None:
        """Look one name up, unless it is known."""
        for shard in range(len(self._links)):
            self.link(shard, timeout)  # tells whether what is known is of this run
        if self.book.find(tensor) is None:
            self._look_up([tensor], timeout)

    @property
    def closed(self) -> bool:
        """Whether it was closed, or is a parent's."""
        return self._closed

    def opened(self) -> list[_core.TensorLink]:
        """The connections that there are."""
        return [link for link in self._links if link is not None]

    def close(self) -> None:
        """Close them. What is outstanding ends with `ClosedError`. Idempotent."""
        self._closed = True
        self.near = None
        for shard in range(len(self._links)):
            link, self._links[shard] = self._links[shard], None
            if link is not None:
                link.close()

    def forget(self) -> object:
        """In a forked child: refuse everything; returns what must not be dropped there."""
        before = (self._links, self._locks, self.near)
        self.near = None
        self._links = [None] * len(self._links)
        self._locks = [threading.Lock() for _ in self._links]
        self._closed = self._forked = True
        return before

    def _look_up(self, names: list[str], timeout: float | None) -> None:
        for begin in range(0, len(names), NAMES_MAX):
            some = names[begin : begin + NAMES_MAX]
            links = [self.link(shard, timeout) for shard in range(len(self._links))]
            epoch = self.book.epoch
            self.book.learn(some, [link.look_up(some, timeout) for link in links], epoch)

    def _open(self, shard: int, timeout: float | None) -> _core.TensorLink:
        settings = self.settings
        limit = settings.config.connect_timeout
        end = time.monotonic() + (limit if timeout is None else min(timeout, limit))
        link: _core.TensorLink = self._greet(shard, end, settings.hello(), settings.link)
        hello = _verbs.offer(settings.config, settings.arena, link)
        if hello is None:
            return link
        needed = settings.config.fabric == "verbs"
        try:
            self._greet(
                *(shard, end, hello),
                lambda lifeline, welcome: link.use_verbs(lifeline._core, welcome, needed=needed),
            )
        except Error as error:
            _verbs.give_up(settings.config, link, error)
        return link

    def _greet(self, shard: int, end: float, hello: bytes, use: Callable[[Any, Any], Any]) -> Any:
        """Connect, say hello, and have what is answered used."""
        connection = self.settings.connect(shard, end - time.monotonic())._open_blocking()
        try:
            connection.send([hello], timeout=max(0.0, end - time.monotonic()))
            welcome = connection.recv(timeout=max(0.0, end - time.monotonic()))[0]
            return use(connection, welcome)
        except (BrokenError, DeadlineError) as error:
            error.add_note(SETTING_UP)
            raise
        finally:
            connection.abort()  # its stream has gone over to the link, or is of no use

    def _refuse_over(self) -> None:
        if self._forked:
            raise StaleError(
                "this tensor client was made by another process, which this one was forked from;"
                " make one here"
            )
        if self._closed:
            raise ClosedError("the tensor client is closed; make another one")


def summed(metrics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What several connections have together."""
    total: dict[str, Any] = {"connections": len(metrics)}
    for each in metrics:
        for key, value in each.items():
            if key != "fabric":
                total[key] = total.get(key, 0) + value
    if metrics:
        total["fabric"] = "; ".join(dict.fromkeys(each["fabric"] for each in metrics))
    return total


def made(make: Callable[[Book], Work], book: Book, links: Sequence[Any]) -> Work:
    """Make a call ready; where the arena is full, once more without the blocks that verbs keep."""
    try:
        return make(book)
    except LimitError:
        left = [link.leave_blocks() for link in links if link is not None]
        if not any(left):
            raise
        return make(book)


def alive(link: _core.TensorLink) -> bool:
    """Whether a connection may be used: it has not been found dead, and is not found so now."""
    return link.probe()
