"""Readers that ask as an open dashboard does: the stream of all events, and the overview again."""

from __future__ import annotations

import json
import threading
from types import TracebackType
from typing import Self

from benchmarks.gateway.address import Address, get
from benchmarks.gateway.readers import Readers

PERIOD_S = 2.0
"""Between two questions of one page (docs/concepts/gateway/dashboard.md)."""


class Dashboards:
    """So many pages of one server, which are open until the block ends.

    Args:
        address: of the gateway, with a token.
        count: of pages.
    """

    def __init__(self, address: Address, count: int) -> None:
        self._address = address
        self._readers = Readers({"/v1/events": address}, count)
        self._connections = [address.connect() for _ in range(count)]
        self._since = [0] * count
        self._rounds = 0
        self._error: Exception | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> Self:
        self._readers.__enter__()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._ending.set()
        self._thread.join()
        self._readers.__exit__(kind, error, at)
        for connection in self._connections:
            connection.close()

    def served(self) -> int:
        """Pages that have had events, and the overview twice; waits for that a while.

        Raises:
            Exception: a question was not answered.
        """
        served = self._readers.served()
        while self._rounds < 2 and self._error is None:
            self._ending.wait(PERIOD_S / 10)
        if self._error is not None:
            raise self._error
        return served

    def _ask(self) -> None:
        try:
            while True:
                for place, connection in enumerate(self._connections):
                    path = f"/v1/overview?since={self._since[place]}"
                    told = json.loads(get(connection, self._address, path))
                    self._since[place] = told["history"]["next"]
                    if self._ending.wait(PERIOD_S / len(self._connections)):
                        return
                self._rounds += 1
        except Exception as error:
            self._error = error
