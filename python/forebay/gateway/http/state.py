"""What the connections of a gateway have in common."""

from __future__ import annotations

import time
from email.utils import formatdate
from typing import TYPE_CHECKING, cast

from uvicorn.server import ServerState

if TYPE_CHECKING:
    from forebay.gateway.http.census import Census
    from forebay.gateway.http.protocol import Protocol

__all__ = ["State"]


class State(ServerState):
    """uvicorn's state of a server, with the count of its connections.

    Attributes:
        lines: of the head of every answer: the date, and that browsers must not guess its type.

    Loop affinity: the gateway's.
    """

    def __init__(self, census: Census) -> None:
        super().__init__()
        self.census = census
        self.lines = b""
        self.tick()

    def tick(self) -> None:
        """A second has passed."""
        date = formatdate(time.time(), usegmt=True).encode()
        self.lines = b"date: %b\r\nx-content-type-options: nosniff\r\n" % date

    def look(self, now: float) -> None:
        """End the connections whose time has run out.

        Args:
            now: the time of the loop.
        """
        for connection in list(self.connections):
            cast("Protocol", connection).look(now)
