"""One slot of a vector environment: the leased service, with the map of its region."""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
from typing import TYPE_CHECKING, Any, NamedTuple

from forebay.errors import Error
from forebay.gym._layout import Layout, layout_of
from forebay.gym._member import Description
from forebay.memory import Window, open_window
from forebay.pool._internal import pidfd_of

if TYPE_CHECKING:
    from forebay.gym._recipe import Recipe
    from forebay.pool import Acquire, Lease, ServicePool

KNOWN_MAX = 1024
"""Services remembered with the map of their regions; a map costs one page here."""


class Known(NamedTuple):
    """What is the same for every lease of one service.

    `owner` keeps the service's record, so that no other one can have its identity.
    """

    owner: Any
    description: Description
    window: Window
    layout: Layout | None


class Slot:
    """A service on lease.

    Attributes:
        lease: of the service.
        service: the proxy.
        known: its description, and its part of its region; set by `learn`.
        raised: whether its environment raised, so that it must be reset before the next step.
    """

    __slots__ = ("_context", "known", "lease", "raised", "service")

    def __init__(self, context: Acquire[Any], service: Any) -> None:
        self._context = context
        self.service = service
        self.lease: Lease = service.lease
        self.known: Known | None = _known.get(id(self.lease._record))
        self.raised = False

    @classmethod
    def take(cls, pool: ServicePool, recipe: Recipe, timeout: float | None) -> Slot:
        """Borrow a service; waits at most `timeout` seconds. Raises as entering an acquire."""
        context = pool.acquire(recipe, timeout=timeout)
        return cls(context, context.__enter__())

    def learn(self, description: Description) -> Known:
        """Map the region of a service that was not known."""
        record = self.lease._record
        window = open_window(pidfd_of(self.lease), self.lease.pid, description.descriptor)
        for key in [key for key, known in _known.items() if known.owner.channel.closed]:
            del _known[key]
        if len(_known) >= KNOWN_MAX:
            del _known[next(iter(_known))]
        self.known = _known[id(record)] = Known(
            record, description, window, _layout_in(description.spaces)
        )
        return self.known

    @property
    def spaces(self) -> Any:
        """Observation and action space: new objects each time, with generators of their own."""
        assert self.known is not None
        return pickle.loads(self.known.description.spaces)

    def give_back(self) -> None:
        """End the lease; the service makes its environment again, or is ended where it is dirty."""
        with contextlib.suppress(Error):
            self._context.__exit__(None, None, None)


_known: dict[int, Known] = {}


@functools.lru_cache(maxsize=64)
def _layout_in(pickled_spaces: bytes) -> Layout | None:
    return layout_of(pickle.loads(pickled_spaces)[0])


def forget_all() -> None:
    """Drop the maps of all regions."""
    _known.clear()


os.register_at_fork(after_in_child=forget_all)
