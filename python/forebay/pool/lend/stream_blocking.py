"""Streams of results on the lease of a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forebay.errors import BrokenError
from forebay.rpc import Stream

if TYPE_CHECKING:
    from forebay.pool.lend.lease import Lease

__all__ = ["LeaseStream"]


class LeaseStream(Stream):
    """A stream that ends with its lease, and whose errors are those of a call on it.

    Leaving it early keeps the service: its generator is closed before the service does anything
    else. A deadline, an interrupt and a broken connection make the lease dirty, as for any call.
    """

    __slots__ = ("_lease",)

    def __init__(self, lease: Lease, *call: Any, **options: Any) -> None:
        self._lease = lease
        super().__init__(*call, **options)

    def _receive(self) -> Any:
        lease = self._lease
        lease.check()
        try:
            return super()._receive()
        except StopIteration:
            raise
        except BrokenError as error:
            raise lease.explain(error) from None
        except BaseException as error:
            lease._weigh(error)
            raise
