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

    FORK = "fork"
    """Every lease gets a fork of a service made once, in its template, and never lent itself.

    It starts where `__init__` left off, in about a millisecond, whatever `__init__` took, and
    is ended when it comes back: the class for untrusted code, and for state that no `reset` can
    clean. A method `reseed` is called in each fork, where the class has one. Each fork is held to
    the class's limits; `__init__` is not, for it runs in the template, with the `TMPDIR` of your
    program.
    """

    NEVER = "never"
    """It is ended when it comes back; every lease gets a new one."""


ENDED = (Reset.FORK, Reset.NEVER)
"""Ways of services that serve one lease."""


def reset_of(service: type) -> Reset:
    """How services of a class are made clean."""
    declared: Reset | None = getattr(service, "resets", None)
    has_reset = callable(getattr(service, "reset", None))
    return declared or (Reset.METHOD if has_reset else Reset.STATELESS)
