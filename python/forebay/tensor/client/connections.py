"""What the connections of threads share with those of an event loop.

Each shard has at most one connection, and at most one caller connects to it. The others wait for
that caller's event, each with its own limit, so that no lock is held while it connects.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from forebay._steps import Either, Steps
from forebay._usage import Figure, tell_by
from forebay.errors import ClosedError, DeadlineError, Error, LimitError, StaleError
from forebay.tensor.client.handshake import handshake
from forebay.tensor.client.limit import Limit
from forebay.tensor.prepare.ref import NameTable, restarted_too_often

if TYPE_CHECKING:
    from forebay import _core
    from forebay.tensor.client.calls import Make
    from forebay.tensor.client.shards import Settings
    from forebay.tensor.prepare.work import Work

__all__ = ["Connections", "Ready"]

NAMES_MAX = 256
"""Names in one request."""

RESTARTS_MAX = 8
"""How often a call is prepared again because a shard restarted meanwhile."""

Ready = tuple["Work", dict[int, "_core.TensorLink"], float | None]
"""A call, connections by shard, and the seconds that are left of its timeout."""


_connections: weakref.WeakSet[Connections] = weakref.WeakSet()
"""Those that somebody keeps, for the figures of this process."""


class Connections:
    """The connections of one face.

    A connection that is found dead before a call uses it is replaced silently: no request was sent.

    Attributes:
        table: the names that were looked up over them.
        settings: what connections are made with.
    """

    _event: Callable[[], Any]
    """Makes an event of the face."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.table = NameTable(settings.urls)
        self._links: list[_core.TensorLink | None] = [None] * len(settings.urls)
        self._opening: dict[int, Any] = {}  # by shard: the event of the caller that connects
        self._closed = self._forked = False
        _connections.add(self)

    @property
    def closed(self) -> bool:
        """Whether it was closed, or is a parent's."""
        return self._closed

    def metrics(self) -> list[dict[str, Any]]:
        """Of each connection that is open."""
        return [link.metrics() for link in self._links if link is not None and not link.closed]

    def refuse_over(self) -> None:
        """Raise if no call may begin any more.

        Raises:
            ClosedError: it was closed. StaleError: it is a parent's.
        """
        if self._forked:
            raise StaleError(
                "this tensor client was made by another process, which this one was forked from;"
                " make one here"
            )
        if self._closed:
            raise ClosedError("the tensor client is closed; make another one")

    def _at_once(self, make: Make, timeout: float | None) -> Ready | None:
        """A call that nothing has to be waited for; else None."""
        work = _made(make, self.table, self._links)
        if work.missing:
            return None
        links = {}
        for shard in work.parts:
            link = self._usable(shard)
            if link is None:
                return None
            links[shard] = link
        return (work, links, timeout) if work.epoch == self.table.epoch else None

    def _make_ready(self, make: Make, timeout: float | None) -> Steps[Ready]:
        """Prepare a call: look its names up, and connect to its shards.

        Raises:
            As `_link`, as `make`, and as looking up.
        """
        table, limit = self.table, Limit(timeout)
        for _ in range(RESTARTS_MAX):
            work = _made(make, table, self._links)
            if work.missing:
                yield from self._look_up(sorted(set(work.missing)), limit)
                continue
            links = yield from self._all(work.parts, limit)
            if work.epoch == table.epoch:
                return work, links, limit.left()
        raise restarted_too_often(self.settings.urls)

    def _find(self, name: str, timeout: float | None) -> Steps[None]:
        """Look one name up, unless it is known."""
        limit = Limit(timeout)
        # Finds out whether the known names are of this run.
        yield from self._all(range(len(self._links)), limit)
        if self.table.find(name) is None:
            yield from self._look_up([name], limit)

    def _look_up(self, names: list[str], limit: Limit) -> Steps[None]:
        limit.begin()
        for some in _portions(names):
            links = yield from self._all(range(len(self._links)), limit)
            epoch = self.table.epoch
            ask = partial(self._meanings, list(links.values()), some, limit)
            self.table.learn(some, (yield Either(ask, ask)), epoch)

    def _meanings(self, links: list[_core.TensorLink], names: list[str], limit: Limit) -> Any:
        """What names mean to each shard; in a loop, a coroutine of that."""
        raise NotImplementedError

    def _all(self, shards: Iterable[int], limit: Limit) -> Steps[dict[int, _core.TensorLink]]:
        links = {}
        for shard in shards:
            links[shard] = self._usable(shard) or (yield from self._link(shard, limit))
        return links

    def _link(self, shard: int, limit: Limit) -> Steps[_core.TensorLink]:
        """A connection to a shard that may be used.

        Raises:
            BrokenError, ProtocolError, ConfigError: connecting failed.
            DeadlineError: not in time.
            ClosedError, StaleError: the client is closed, or a parent's.
        """
        limit, link = limit.within(self.settings.config.connect_timeout), None
        while link is None:
            self.refuse_over()
            mine = self._event()
            theirs = self._opening.setdefault(shard, mine)  # atomic, so that one caller connects
            if theirs is mine:
                try:
                    return self._usable(shard) or (yield from self._renew(shard, limit))
                finally:
                    self._opened(shard, mine)
            left = limit.left()
            if not (yield Either(partial(theirs.wait, left), partial(_set_within, theirs, left))):
                raise self._late(shard, limit)
            link = self._usable(shard)
        return link

    def _renew(self, shard: int, limit: Limit) -> Steps[_core.TensorLink]:
        # Not closed: outstanding calls end with the error that broke it.
        self._links[shard] = None
        link = yield from handshake(self.settings, shard, limit.left(), self.refuse_over)
        self._adopt(shard, link)
        return link

    def _usable(self, shard: int) -> _core.TensorLink | None:
        link = self._links[shard]
        return link if link is not None and link.probe() else None

    def _adopt(self, shard: int, link: _core.TensorLink) -> None:
        """Use a new connection; only the caller in `_opening` may call this."""
        self.table.connected(shard, link.incarnation)
        self._links[shard] = link
        if (
            self._closed
        ):  # checked last: `_shut` sets the flag first, then closes the links that it finds
            link.close()
            self.refuse_over()

    def _opened(self, shard: int, event: Any) -> None:
        """Wake the callers that wait for a connection, whether it was made or not."""
        self._opening.pop(shard, None)
        event.set()

    def _late(self, shard: int, limit: Limit) -> DeadlineError:
        """The error of a caller that waited too long for another caller's connection."""
        return DeadlineError(
            f"{self.settings.urls[shard]} did not answer within {limit.seconds:g} s; another caller"
            " is still connecting to it",
            timeout=limit.seconds,
        )

    def _shut(self) -> None:
        self._closed = True
        for shard, link in enumerate(self._links):
            self._links[shard] = None
            if link is not None:
                link.close()
        for event in tuple(self._opening.values()):
            event.set()  # waiting callers are refused now, a connecting one when it has connected

    def _leave_behind(self) -> object:
        """In a forked child: refuse everything; returns what must not be dropped there."""
        before = (self._links, self._opening)
        self._links = [None] * len(self._links)
        self._opening = {}
        self._closed = self._forked = True
        return before


async def _set_within(event: asyncio.Event, seconds: float | None) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


def _portions(names: list[str]) -> Iterator[list[str]]:
    """Split names into requests of at most NAMES_MAX."""
    for begin in range(0, len(names), NAMES_MAX):
        yield names[begin : begin + NAMES_MAX]


def _made(make: Make, table: NameTable, links: Sequence[_core.TensorLink | None]) -> Work:
    """Prepare a call; if the arena is full, once more without the blocks that verbs keep."""
    try:
        return make(table)
    except LimitError:
        left = [link.leave_blocks() for link in links if link is not None]
        if not any(left):
            raise
        return make(table)


def _figures() -> Iterable[Figure]:
    """The slots of this process's connections: requests under way, and those that wait for one."""
    for face in list(_connections):
        with contextlib.suppress(Error):  # closed meanwhile
            for counted in face.metrics():
                yield "forebay_tensor_slots", ("used",), counted["outstanding"]
                yield "forebay_tensor_slots", ("waiting",), counted["waiting"]


tell_by("tensor", _figures)
