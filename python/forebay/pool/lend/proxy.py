"""What the holder of a lease sees: an object with the service's methods."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from forebay import _trace

if TYPE_CHECKING:
    from forebay.pool.lend.lease import Lease

_CO_GENERATOR = 0x20
"""Of a function's flags; `inspect`, which names it, costs 10 ms to import."""

_NO_CODE = (lambda: None).__code__

TRACED = "@traced"
"""The control method by which a service runs one of its own within a span."""

RESERVED = "lease"
"""The one public name of a proxy that is not the service's."""


class Proxy:
    """The public methods of a leased service, and `lease`.

    Each kind has a subclass with its methods. They return the answer, or a coroutine if the lease
    is of an event loop.
    """

    __slots__ = ("_timeout", "lease")

    kind_name: ClassVar[str]
    methods: ClassVar[frozenset[str]]

    def __init__(self, lease: Lease, timeout: float | None = None) -> None:
        self.lease = lease
        self._timeout = timeout

    def __getattr__(self, name: str) -> NoReturn:
        if name == "reset":
            raise AttributeError(
                f"service {self.kind_name}: 'reset' runs when the lease ends, and is not called by "
                "its holder; where callers are to reset it too, call it by a method of another name"
            )
        near = difflib.get_close_matches(name, self.methods, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"service {self.kind_name} has no public method {name!r}{hint}")

    def __dir__(self) -> list[str]:
        return sorted({*self.methods, RESERVED})

    def __repr__(self) -> str:
        return f"<{self.kind_name} on lease: {self.lease!r}>"


def proxy_class(
    name: str,
    methods: frozenset[str],
    call_timeout: float | None = None,
    streams: frozenset[str] = frozenset(),
) -> type[Any]:
    """The class of the proxies of one kind.

    Their calls take at most `call_timeout` seconds, unless `lease.options` sets another timeout.
    Methods in `streams` are streams.
    """
    common: dict[str, Any] = {"__slots__": (), "kind_name": name, "methods": methods}
    if call_timeout is not None:
        common["__init__"] = _timed(call_timeout)
    names = methods - {RESERVED}
    if _trace.spans is None:
        common |= {method: _calling(method) for method in names - streams}
    else:
        common |= {method: _traced(name, method, _trace.spans) for method in names - streams}
    common |= {method: _streaming(method) for method in names & streams}
    return type(name, (Proxy,), common)


def _timed(call_timeout: float) -> Callable[..., None]:
    def initialise(self: Proxy, lease: Lease, timeout: float | None = None) -> None:
        Proxy.__init__(self, lease, call_timeout if timeout is None else timeout)

    return initialise


def _calling(name: str) -> Callable[..., Any]:
    def method(self: Proxy, /, *args: Any, **kwargs: Any) -> Any:
        return self.lease.call(name, args, kwargs, self._timeout)

    method.__name__ = method.__qualname__ = name
    return method


def _traced(service: str, name: str, spans: _trace.Spans) -> Callable[..., Any]:
    """The same within a span, of which the service is told."""

    async def awaited(self: Proxy, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with spans.call(service, name) as traceparent:
            told = (traceparent, service, name, args, kwargs)
            return await self.lease.call(TRACED, told, {}, self._timeout)

    def method(self: Proxy, /, *args: Any, **kwargs: Any) -> Any:
        if self.lease.asyncio:
            return awaited(self, args, kwargs)
        with spans.call(service, name) as traceparent:
            told = (traceparent, service, name, args, kwargs)
            return self.lease.call(TRACED, told, {}, self._timeout)

    method.__name__ = method.__qualname__ = name
    return method


def _streaming(name: str) -> Callable[..., Any]:
    def method(self: Proxy, /, *args: Any, **kwargs: Any) -> Any:
        return self.lease.stream(name, args, kwargs, timeout=self._timeout)

    method.__name__ = method.__qualname__ = name
    return method


def streaming_methods(service: type) -> frozenset[str]:
    """Those of the public methods that are generators."""
    generators = (
        name
        for name in public_methods(service)
        if getattr(getattr(service, name), "__code__", _NO_CODE).co_flags & _CO_GENERATOR
    )
    return frozenset(generators)


def public_methods(service: type) -> frozenset[str]:
    """Names that calls may use: public callables of the class that the pool does not call itself.

    Those that the pool calls are in `forebay.pool.service.names`.
    """
    from forebay.pool.service.service import Service

    own = {"reset", *(name for name in dir(Service) if not name.startswith("_"))}
    names = (
        name
        for name in dir(service)
        if not name.startswith("_") and callable(getattr(service, name, None))
    )
    return frozenset(names) - own
