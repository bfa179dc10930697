"""Streams of results on the lease of an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forebay.errors import BrokenError
from forebay.rpc import AsyncStream

if TYPE_CHECKING:
    from forebay.pool.lend.lease import AsyncLease

__all__ = ["AsyncLeaseStream"]


class AsyncLeaseStream(AsyncStream):
    """What `LeaseStream` is for threads. A task cancelled while it waits makes nothing dirty."""

    __slots__ = ("_lease",)

    def __init__(self, lease: AsyncLease, *call: Any, **options: Any) -> None:
        self._lease = lease
        super().__init__(*call, **options)

    async def _receive(self) -> Any:
        lease = self._lease
        lease.check()
        try:
            return await super()._receive()
        except BrokenError as error:
            raise await lease.explain(error) from None
        except Exception as error:
            lease._weigh(error)
            raise
