"""A description of a Python service, and the key that makes two of them interchangeable."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from forebay.errors import ConfigError
from forebay.pool.service import identity
from forebay.pool.service.reset import Reset, reset_of

if TYPE_CHECKING:
    from forebay.pool.service.limits import Limits
    from forebay.pool.service.service import Service

S = TypeVar("S", bound="Service")


class Spec(Generic[S]):
    """A service class and the arguments that its services are made with. Immutable."""

    __slots__ = ("args", "arguments", "key", "kwargs", "service")

    def __init__(self, service: type[S], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.service = service
        self.args = args
        self.kwargs = kwargs
        self.arguments = pickled(
            (args, sorted(kwargs.items())), what=f"the arguments of {service.__name__}.spec()"
        )
        limits = self.limits
        terms = None if limits is None else limits.terms
        self.key: tuple[Any, ...] = (*identity.defined(service), self.arguments, terms)

    @property
    def resets(self) -> Reset:
        """How its services are made clean."""
        return reset_of(self.service)

    @property
    def limits(self) -> Limits | None:
        """What its services may use."""
        return self.service.limits

    def __repr__(self) -> str:
        shown = [
            *map(repr, self.args),
            *(f"{name}={value!r}" for name, value in self.kwargs.items()),
        ]
        return f"{self.service.__name__}.spec({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def pickled(value: Any, *, what: str) -> bytes:
    """Pickle `value`, or raise an error that names it."""
    try:
        return pickle.dumps(value, protocol=5)
    except Exception as error:
        raise ConfigError(
            f"{what} cannot be pickled, so they cannot travel to another process: {error}"
        ) from error
