"""What the holder of a lease sees: an object with the service's methods."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay.pool._kind import Kind
    from forebay.pool._lease import Lease

RESERVED = "lease"
"""The one public name of a proxy that is not the service's."""


class Proxy:
    """The public methods of a leased service, and `lease`."""

    lease: Lease

    def __init__(self, lease: Lease, kind: Kind, bind: Callable[[str], Callable[..., Any]]) -> None:
        self.lease = lease
        self._kind = kind
        self._bind = bind

    def __getattr__(self, name: str) -> Callable[..., Any]:
        methods = self._kind.methods
        if name.startswith("_") or name not in methods:
            near = difflib.get_close_matches(name, methods, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise AttributeError(f"service {self._kind.name} has no public method {name!r}{hint}")
        method = self._bind(name)
        self.__dict__[name] = method  # found without this function from now on
        return method

    def __dir__(self) -> list[str]:
        return sorted({*self._kind.methods, RESERVED})

    def __repr__(self) -> str:
        return f"<{self._kind.name} on lease: {self.lease!r}>"


class Backend:
    """A leased program: the socket to it, and `lease`."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease

    @property
    def socket(self) -> Any:
        """The connected socket; valid until the lease ends."""
        return self.lease.socket


def proxy(lease: Lease, kind: Kind, *, asyncio: bool, timeout: float | None = None) -> Any:
    """A proxy whose calls take at most `timeout` seconds.

    Its methods are coroutines where `asyncio` is true.
    """
    if not kind.methods:
        return Backend(lease)

    def blocking(name: str) -> Callable[..., Any]:
        call = lease.call
        return lambda *args, **kwargs: call(name, args, kwargs, timeout)

    def awaiting(name: str) -> Callable[..., Any]:
        call = lease.acall
        return lambda *args, **kwargs: call(name, args, kwargs, timeout)

    return Proxy(lease, kind, awaiting if asyncio else blocking)


def public_methods(service: type) -> frozenset[str]:
    """Names that calls may use: public callables of the class, without the pool's own."""
    from forebay.pool._service import Service

    own = {"reset", *(name for name in dir(Service) if not name.startswith("_"))}
    names = (
        name
        for name in dir(service)
        if not name.startswith("_") and callable(getattr(service, name, None))
    )
    return frozenset(names) - own
