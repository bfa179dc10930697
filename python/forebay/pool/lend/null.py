"""A pool that keeps no services: for comparison with a pool, and to isolate every lease."""

from __future__ import annotations

import copy
from typing import Any

from forebay.pool.lend.kind import Kind
from forebay.pool.lend.pool import ServicePool
from forebay.pool.programs.command import Command
from forebay.pool.service.by_value import Value
from forebay.pool.service.reset import Reset
from forebay.pool.service.spec import Spec


class NullPool(ServicePool):
    """A `ServicePool` that keeps no services: every lease gets a new one, which ends with it.

    Templates are kept, so that a new Python service still takes about a millisecond. All limits
    hold.
    """

    def __repr__(self) -> str:
        return f"<NullPool {self.name!r}, at most {self.config.max_size} services>"

    def _new_kind(self, spec: Spec[Any] | Command, value: Value | None) -> Kind:
        kind = copy.copy(super()._new_kind(spec, value))
        kind.resets = Reset.NEVER
        kind.max_leases = 1
        return kind
