"""What the connections of threads share with those of an event loop.

Each shard has at most one connection, and at most one caller connects to it. The others wait for
that caller's event, each with its own limit, so that no lock is held while it connects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from forebay.errors import ClosedError, DeadlineError, LimitError, StaleError
from forebay.tensor.prepare.ref import NameTable

if TYPE_CHECKING:
    from forebay import _core
    from forebay.tensor.client.calls import Make
    from forebay.tensor.client.limit import Limit
    from forebay.tensor.client.shards import Settings
    from forebay.tensor.prepare.work import Work

__all__ = ["RESTARTS_MAX", "Connections", "made", "portions"]

NAMES_MAX = 256
"""Names in one request."""

RESTARTS_MAX = 8
"""How often a call is prepared again because a shard restarted meanwhile."""


class _Event(Protocol):
    def set(self) -> None: ...


Event = TypeVar("Event", bound=_Event)


class Connections(Generic[Event]):
    """The connections of one face.

    A connection that is found dead before a call uses it is replaced silently: no request was sent.

    Attributes:
        table: the names that were looked up over them.
        settings: what connections are made with.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.table = NameTable(settings.urls)
        self._links: list[_core.TensorLink | None] = [None] * len(settings.urls)
        self._opening: dict[int, Event] = {}  # by shard: the event of the caller that connects
        self._closed = self._forked = False

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

    def _usable(self, shard: int) -> _core.TensorLink | None:
        link = self._links[shard]
        return link if link is not None and link.probe() else None

    def _adopt(self, shard: int, link: _core.TensorLink) -> _core.TensorLink:
        """Use a new connection; only the caller in `_opening` may call this."""
        self.table.connected(shard, link.incarnation)
        self._links[shard] = link
        if (
            self._closed
        ):  # checked last: `_shut` sets the flag first, then closes the links that it finds
            link.close()
            self.refuse_over()
        return link

    def _opened(self, shard: int, event: Event) -> None:
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


def portions(names: list[str]) -> Iterator[list[str]]:
    """Split names into requests of at most NAMES_MAX."""
    for begin in range(0, len(names), NAMES_MAX):
        yield names[begin : begin + NAMES_MAX]


def made(make: Make, table: NameTable, links: Sequence[_core.TensorLink | None]) -> Work:
    """Prepare a call; if the arena is full, once more without the blocks that verbs keep."""
    try:
        return make(table)
    except LimitError:
        left = [link.leave_blocks() for link in links if link is not None]
        if not any(left):
            raise
        return make(table)
