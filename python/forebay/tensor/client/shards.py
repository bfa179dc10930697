"""Connections to the shards of a server, for threads."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forebay import _core
from forebay.tensor.client.connections import RESTARTS_MAX, Connections, made, portions
from forebay.tensor.client.handshake import handshake_blocking
from forebay.tensor.client.limit import Limit
from forebay.tensor.prepare.ref import restarted_too_often
from forebay.transport import connect

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.config import TensorConfig
    from forebay.memory import Arena
    from forebay.tensor.prepare.ref import NameTable
    from forebay.tensor.prepare.work import Work
    from forebay.transport import Tls

__all__ = ["Settings", "Shards", "summed"]


@dataclass(frozen=True, slots=True)
class Settings:
    """What connections are made with."""

    urls: list[str]
    config: TensorConfig
    tls: Tls | None
    token: str | bytes | None
    arena: Arena | None = None

    def connect(self, shard: int, timeout: float | None) -> Any:
        """The connection of the transport, not opened yet."""
        limit = self.config.connect_timeout
        timeout = limit if timeout is None else min(limit, timeout)
        return connect(self.urls[shard], tls=self.tls, token=self.token, timeout=timeout)

    def hello(self) -> bytes:
        """The first message of a client."""
        config = self.config
        return _core.tensor_hello(
            config.slots,
            shared_memory=config.fabric == "auto",
            verbs=config.fabric != "stream",
        )

    def link(self, connection: Any, welcome: Any) -> _core.TensorLink:
        """Make a tensor link of a connection whose welcome was received."""
        config = self.config
        return _core.TensorLink(
            connection._core,
            welcome,
            piece_bytes=config.piece_bytes,
            waiting_max=config.max_waiting,
            liveness=config.liveness,
        )


class Shards(Connections[threading.Event]):
    """The connections that threads and futures of one client share, made on first use.

    Attributes:
        shm_link: the connection to the one shard there is, once it reads that one's memory.
        ports: idle ones, each of which drives the connections of a thread while it waits.

    Threads: any.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.shm_link: _core.TensorLink | None = None
        self.ports: list[_core.TensorPort] = []

    def link(self, shard: int, limit: Limit) -> _core.TensorLink:
        """A connection to a shard that may be used.

        Raises:
            BrokenError, ProtocolError, ConfigError: connecting failed.
            DeadlineError: not in time.
            ClosedError, StaleError: the client is closed, or a parent's.
        """
        link = self._usable(shard)
        if link is not None:
            return link
        limit = limit.within(self.settings.config.connect_timeout)
        while link is None:
            self.refuse_over()
            mine = threading.Event()
            theirs = self._opening.setdefault(shard, mine)  # atomic, so that one caller connects
            if theirs is mine:
                try:
                    return self._usable(shard) or self._renew(shard, limit)
                finally:
                    self._opened(shard, mine)
            if not theirs.wait(limit.left()):
                raise self._late(shard, limit)
            link = self._usable(shard)
        return link

    def ready(
        self, make: Callable[[NameTable], Work], timeout: float | None
    ) -> tuple[Work, dict[int, _core.TensorLink], float | None]:
        """Prepare a call: look its names up, and connect to its shards.

        Returns:
            The call, connections by shard, and the seconds that are left of `timeout`.

        Raises:
            As `link`, as `make`, and as looking up.
        """
        table, limit = self.table, Limit(timeout)
        for _ in range(RESTARTS_MAX):
            work = made(make, table, self._links)
            if work.missing:
                self._look_up(sorted(set(work.missing)), limit)
                continue
            links = {shard: self.link(shard, limit) for shard in work.parts}
            if work.epoch == table.epoch:
                return work, links, limit.left()
        raise restarted_too_often(self.settings.urls)

    def names(self, tensor: str, timeout: float | None) -> None:
        """Look one name up, unless it is known."""
        limit = Limit(timeout)
        for shard in range(len(self._links)):
            self.link(shard, limit)  # finds out whether the known names are of this run
        if self.table.find(tensor) is None:
            self._look_up([tensor], limit)

    def close(self) -> None:
        """Close them. What is outstanding ends with `ClosedError`. Idempotent."""
        self._shut()
        self.shm_link = None
        while self.ports:
            self.ports.pop().close()

    def forget(self) -> object:
        """In a forked child: refuse everything; returns what must not be dropped there."""
        before = (self.shm_link, self.ports, self._leave_behind())
        self.shm_link = None
        self.ports = []
        return before

    def _look_up(self, names: list[str], limit: Limit) -> None:
        limit.begin()
        for some in portions(names):
            links = [self.link(shard, limit) for shard in range(len(self._links))]
            epoch = self.table.epoch
            self.table.learn(some, [link.look_up(some, limit.left()) for link in links], epoch)

    def _renew(self, shard: int, limit: Limit) -> _core.TensorLink:
        # Not closed: outstanding calls end with the error that broke it.
        self._links[shard] = None
        link = handshake_blocking(self.settings, shard, limit.left(), self.refuse_over)
        self._adopt(shard, link)
        # Last: a caller that finds it finds no handles of an earlier run of the shard.
        reads_memory = len(self._links) == 1 and link.fabric == "shm"
        self.shm_link = link if reads_memory and not self._closed else None
        return link


COUNTED = (
    *("outstanding", "waiting", "sent_bytes", "received_bytes"),
    *("shm_pulls", "shm_bytes", "shm_busy", "shm_stale", "shm_elsewhere", "shm_chunks"),
    *("verbs_pulls", "verbs_bytes", "verbs_refused"),
)
"""What each connection counts."""

UNCONNECTED = "none: nothing is connected yet"
"""The fabric of a client before its first call."""


def summed(metrics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What several connections have together."""
    total: dict[str, Any] = {"connections": len(metrics), **dict.fromkeys(COUNTED, 0)}
    total["fabric"] = UNCONNECTED
    for each in metrics:
        for key, value in each.items():
            if key != "fabric":
                total[key] = total.get(key, 0) + value
    if metrics:
        total["fabric"] = "; ".join(dict.fromkeys(each["fabric"] for each in metrics))
    return total
