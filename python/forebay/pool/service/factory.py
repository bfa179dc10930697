"""A function that makes a service out of any object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from forebay.errors import ConfigError
from forebay.pool.service.limits import Limits
from forebay.pool.service.reset import Reset
from forebay.pool.service.spec import Spec


class Factory(Spec[Any]):
    """A top-level function, or any class, and the arguments that its services are made with.

    Immutable. See `factory`.
    """

    __slots__ = ("_limits", "_resets")

    def __init__(
        self,
        make: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        resets: Reset = Reset.STATELESS,
        limits: Limits | None = None,
    ) -> None:
        if not callable(make) or not hasattr(make, "__qualname__"):
            raise ConfigError(f"factory needs a top-level function or a class, not {make!r}")
        self._resets = resets
        self._limits = limits
        super().__init__(make, args, kwargs)  # type: ignore[arg-type]  # any callable will do
        # The longest time of a call too: here no class sets it for all of them.
        self.key = ("factory", *self.key, resets, limits and limits.call_seconds)

    @property
    def resets(self) -> Reset:
        """How its services are made clean."""
        return self._resets

    def resetting(self, resets: Reset) -> Self:
        """The same, made clean in another way.

        Example:
            >>> import collections, forebay
            >>> counter = forebay.factory(collections.Counter).resetting(forebay.Reset.NEVER)
            >>> counter.resets
            <Reset.NEVER: 'never'>
        """
        return type(self)(self.service, self.args, self.kwargs, resets, self._limits)

    @property
    def limits(self) -> Limits | None:
        """What its services may use."""
        return self._limits

    def limited(self, limits: Limits | None) -> Self:
        """The same, whose services may use no more than `limits`.

        Example:
            >>> import collections, forebay
            >>> counter = forebay.factory(collections.Counter)
            >>> counter.limited(forebay.Limits(memory="1GB")) == counter
            False
        """
        return type(self)(self.service, self.args, self.kwargs, self._resets, limits)

    def __repr__(self) -> str:
        shown = [*map(repr, self.args), *(f"{name}={it!r}" for name, it in self.kwargs.items())]
        return f"factory({', '.join([self.service.__qualname__, *shown])})"


def factory(make: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Factory:
    """Describe a service that is whatever a function returns: `acquire(factory(make_engine, 4))`.

    `make` runs once per process; the public methods of its result become the service's methods,
    which are known once the first one has started.
    It must be at the top level of a module that can be imported. Only the template imports that
    module; the processes are forked from it.
    Two factories of one function with equal arguments name interchangeable services.
    A service is lent again without a reset (`Reset.STATELESS`) unless `resetting` says otherwise,
    and has limits only if `limited` sets some.

    Args:
        make: a function or a class, of any package.
        args: its positional arguments; they are pickled for a process of the same user.
        kwargs: its named arguments.

    Raises:
        ConfigError: it is no function, or an argument cannot be pickled.

    Example:
        >>> import collections, forebay
        >>> forebay.factory(collections.Counter, "hello")
        factory(Counter, 'hello')
    """
    return Factory(make, args, kwargs)
