"""The open connections, counted in all and by address."""

from __future__ import annotations

from collections import Counter
from typing import Final

from forebay.gateway.http.limits import BODIES_MAX

UNKNOWN: Final = ""
"""The address of a peer that has none, as on a Unix socket."""


class Census:
    """How many connections there are, from where, and how much of bodies they have sent.

    Loop affinity: the gateway's.
    """

    def __init__(self, max_connections: int, max_per_address: int, max_body_bytes: int) -> None:
        self.max_connections = max_connections
        self.max_per_address = max_per_address
        self.max_body_bytes = max_body_bytes
        self.total = 0
        self.refused = 0
        self.body_bytes = 0
        """Received of bodies that no handler has yet."""
        self._of_address: Counter[str] = Counter()

    def enter(self, address: str) -> str | None:
        """Count a connection; the name of the limit that it exceeds, if so.

        One that exceeds a limit is counted too, until it leaves: it is there.
        """
        self.total += 1
        self._of_address[address] += 1
        if self.total > self.max_connections:
            self.refused += 1
            return "max_connections"
        if address != UNKNOWN and self._of_address[address] > self.max_per_address:
            self.refused += 1
            return "max_connections_per_address"
        return None

    def leave(self, address: str) -> None:
        """It was closed."""
        self.total -= 1
        self._of_address[address] -= 1
        if not self._of_address[address]:
            del self._of_address[address]

    @property
    def bodies_full(self) -> bool:
        """Whether too much of bodies is under way for more."""
        return self.body_bytes > BODIES_MAX * self.max_body_bytes
