"""The overview of a server: one answer for all who look, made once a second at most."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from forebay.errors import Error
from forebay.executor._internal import now_ms, rfc3339
from forebay.gateway.asgi.fresh import Fresh
from forebay.gateway.dashboard.history import EVERY_S, History

if TYPE_CHECKING:
    from forebay.gateway.asgi.server_link import ServerLink
    from forebay.gateway.token import Token

__all__ = ["Overview"]

SCHEMA: Final = 1

FACTS: Final = ("app", "version", "draining", "fault", "started_at")
"""Of what `info` says of a server."""

WAITING: Final = "forebay_requests_waiting"
"""The gauge that says for what requests wait."""

_encode = msgspec.json.Encoder().encode


class Overview:
    """The figures of a server now, and in the last hour.

    Loop affinity: the gateway's.

    Args:
        server: that is asked.
        info: of the server, as the gateway keeps it.
    """

    def __init__(self, server: ServerLink, info: Fresh[dict[str, Any]]) -> None:
        self._server = server
        self._info = info
        self._now: Fresh[bytes] = Fresh(self._load)
        self._started = _running_s()
        self._number = int(time.time() / EVERY_S)
        self._history = History(self._number)
        self._whole: tuple[int, bytes] | None = None
        """All of the history in JSON, and the number behind its newest sample."""

    async def body(self, since: int | None, reader: Token) -> bytes:
        """The overview in JSON.

        Args:
            since: the number of the first sample of the history that the reader has not got yet;
                None: it has none.
            reader: who asks; what may be done with the server hangs on its role.

        Cancellation: safe.
        """
        shared = await self._now.get()
        me = _encode({"name": reader.name, "role": reader.role.word})
        return b'%b,"me":%b,"history":%b}' % (shared[:-1], me, self._told(since))

    async def keep(self) -> None:
        """Take a sample now and each `EVERY_S` from then on, until it is cancelled.

        While the server is away its one question waits, and what is not answered is a gap.
        """
        while True:
            try:
                info = await self._info.get()
                workers = await self._server.ask("workers")
            except Error:
                pass
            else:
                number = self._number + int(self._ran_s() // EVERY_S)
                self._history.add(number, rfc3339(now_ms()), info["figures"], workers["workers"])
            await asyncio.sleep(EVERY_S - self._ran_s() % EVERY_S)

    def _ran_s(self) -> float:
        return _running_s() - self._started

    def _told(self, since: int | None) -> bytes:
        """The samples from that number on; all of them are made into JSON once for each sample."""
        if since is not None:
            return _encode(self._history.told(since))
        if self._whole is None or self._whole[0] != self._history.next:
            self._whole = self._history.next, _encode(self._history.told(None))
        return self._whole[1]

    async def _load(self) -> bytes:
        """What is the same for all readers, in JSON."""
        server = self._server
        info = await self._info.get()
        metrics = await server.ask("metrics")
        workers = await server.ask("workers")
        services = await server.ask("services")
        figures = info["figures"]
        return _encode(
            {
                "schema": SCHEMA,
                "at": rfc3339(now_ms()),
                "info": {**{name: info.get(name) for name in FACTS}, "held": figures["held"]},
                "figures": figures,
                "waits": _waits(metrics["gauges"]),
                "workers": workers["workers"],
                "services": services["services"],
            }
        )


def _waits(gauges: list[Any]) -> dict[str, int]:
    """How many requests wait, by what they wait for."""
    return {labels["reason"]: count for name, labels, count in gauges if name == WAITING}


def _running_s() -> float:
    """Of the machine, also while it slept: that is a gap of the history."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
