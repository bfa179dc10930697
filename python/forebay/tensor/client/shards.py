"""Connections to the shards of a server, for threads."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forebay import _core
from forebay._steps import block
from forebay.tensor.client.connections import Connections
from forebay.transport import connect

if TYPE_CHECKING:
    from forebay.config import TensorConfig
    from forebay.memory import Arena
    from forebay.tensor.client.calls import Make
    from forebay.tensor.client.connections import Ready
    from forebay.tensor.client.limit import Limit
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


class Shards(Connections):
    """The connections that threads and futures of one client share, made on first use.

    Attributes:
        shm_link: the connection to the one shard there is, once it reads that one's memory.
        ports: idle ones, each of which drives the connections of a thread while it waits.

    Threads: any.
    """

    _event = threading.Event

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.shm_link: _core.TensorLink | None = None
        self.ports: list[_core.TensorPort] = []

    def ready(self, make: Make, timeout: float | None) -> Ready:
        """Prepare a call: look its names up, and connect to its shards.

        Raises:
            BrokenError, ProtocolError, ConfigError: connecting failed.
            DeadlineError: not in time.
            ClosedError, StaleError: the client is closed, or a parent's.
            As `make`, and as looking up.
        """
        return self._at_once(make, timeout) or block(self._make_ready(make, timeout), None)

    def names(self, name: str, timeout: float | None) -> None:
        """Look one name up, unless it is known."""
        block(self._find(name, timeout), None)

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

    def _meanings(self, links: list[_core.TensorLink], names: list[str], limit: Limit) -> Any:
        return [link.look_up(names, limit.left()) for link in links]

    def _adopt(self, shard: int, link: _core.TensorLink) -> None:
        super()._adopt(shard, link)
        # Last: a caller that finds it finds no handles of an earlier run of the shard.
        reads_memory = len(self._links) == 1 and link.fabric == "shm"
        self.shm_link = link if reads_memory and not self._closed else None


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
