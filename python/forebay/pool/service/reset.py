"""What makes a service clean between two leases."""

from __future__ import annotations

import enum


class Reset(enum.Enum):
    """How a service may be used again after a lease.

    A class that has a `reset` method is `METHOD`, one that has none is `STATELESS`, unless its
    class attribute `resets` says otherwise.
    """

    STATELESS = "stateless"
    """It keeps nothing from one lease to the next: it is idle as soon as it is given back."""

    METHOD = "method"
    """Its `reset` is called when it is given back; it is lent again once that has returned."""

    FORK = "fork"
    """Every lease gets a fork of a service made once, in its template, and never lent itself.

    It has the state that `__init__` left, starts in about a millisecond however long `__init__`
    takes, and is ended when it is given back: for untrusted code, and for state that no `reset` can
    clean. If the class has a method `reseed`, each fork calls it. The class's limits hold for each
    fork, but not for `__init__`, which runs in the template, with the `TMPDIR` of your program.
    """

    NEVER = "never"
    """It is ended when it is given back; every lease gets a new one."""


ENDED = (Reset.FORK, Reset.NEVER)
"""The resets of services that serve one lease only."""


def reset_of(service: type) -> Reset:
    """How services of a class are made clean."""
    declared: Reset | None = getattr(service, "resets", None)
    has_reset = callable(getattr(service, "reset", None))
    return declared or (Reset.METHOD if has_reset else Reset.STATELESS)
