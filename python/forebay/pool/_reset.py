"""What makes a service clean between two leases."""

from __future__ import annotations

import enum


class Reset(enum.Enum):
    """How a service may be used again after a lease.

    A class that has a `reset` method is `METHOD`, one that has none is `STATELESS`, unless its
    class attribute `resets` says otherwise.
    """

    STATELESS = "stateless"
    """It keeps nothing from one lease to the next: it is idle as soon as it comes back."""

    METHOD = "method"
    """Its method `reset` is called when it comes back; it is lent again once that has returned."""

    NEVER = "never"
    """It is ended when it comes back; every lease gets a new one."""
