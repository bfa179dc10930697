"""What the annotation of a generator says of its items and of its result."""

from __future__ import annotations

import collections.abc
import typing
from typing import Any, Final

from forebay.errors import ConfigError
from forebay.executor.app.types import shown

__all__ = ["yielded"]

_NONE: Final = type(None)

_RESULTS: Final[dict[Any, Any]] = {
    collections.abc.Generator: _NONE,
    collections.abc.Iterator: Any,
    collections.abc.Iterable: Any,
    collections.abc.AsyncGenerator: _NONE,
    collections.abc.AsyncIterator: _NONE,
    collections.abc.AsyncIterable: _NONE,
}
"""The result by what it is annotated with; an iterator does not say what is returned at its end."""


def yielded(annotation: Any, what: str) -> tuple[Any, Any]:
    """The types of the items and of the result of a generator.

    Args:
        annotation: of what it returns, evaluated; Any if it has none.
        what: whose it is, as in "request 'classify'".

    Raises:
        ConfigError: no generator is annotated so.
    """
    if annotation is Any:
        return Any, Any
    origin = typing.get_origin(annotation) or annotation
    if origin not in _RESULTS:
        raise ConfigError(
            f"{what} is a generator and annotated with {shown(annotation)}; annotate it with"
            " Iterator[T] or AsyncIterator[T] where T is the type of an item, or with"
            " Generator[T, None, R] where it returns an R"
        )
    parts = typing.get_args(annotation)
    if not parts:  # it says nothing
        return Any, Any
    is_whole = origin is collections.abc.Generator and len(parts) == 3
    return parts[0], parts[2] if is_whole else _RESULTS[origin]
