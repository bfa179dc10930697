"""Where spans begin: nowhere, until `forebay.telemetry` puts something here.

A module that is on the way of a request or a call looks at `spans` and finds None: that costs some
nanoseconds, and no tracing library is imported.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

__all__ = ["Spans", "spans"]


class Spans(Protocol):
    """What begins and ends the spans of this process. Thread-safe."""

    def send(self, name: str, traceparent: str | None) -> str | None:
        """A request is submitted; the traceparent that goes with it.

        Args:
            name: of the request.
            traceparent: that its submitter has given.
        """

    def process(
        self, name: str, id: str, attempt: int, traceparent: str | None
    ) -> AbstractContextManager[None]:
        """A request runs, until the block ends."""

    def acquire(self, pool: str, service: str) -> AbstractContextManager[None]:
        """A service is acquired, which has happened when the block ends."""

    def call(self, service: str, method: str) -> AbstractContextManager[str]:
        """A method of a service is called; gives the traceparent for the service."""

    def serve(self, service: str, method: str, traceparent: str) -> AbstractContextManager[None]:
        """A service runs a method, until the block ends."""


spans: Spans | None = None
"""Set once, by `forebay.telemetry.enable`, before the first service or request."""
