"""The mark of secret arguments, which are sealed on disk and shown nowhere."""

from __future__ import annotations

import dataclasses
import typing
from typing import Annotated, Any, Final, TypeVar

__all__ = ["SHOWN", "Secret", "is_secret"]

T = TypeVar("T")

SHOWN: Final = "<secret>"
"""What stands in the place of a secret, for whoever is not the worker."""


class _Mark:
    """What an annotation has beside its type."""

    def __repr__(self) -> str:
        return "Secret"


_MARK: Final = _Mark()

Secret = Annotated[T, _MARK]
"""An argument that is kept for the worker alone: `password: forebay.Secret[str]`.

The server seals its value before it is written, and opens it for the worker that runs the request.
Nothing shows it: neither `forebay show` nor a listing, a refusal or the description of the server.
For the function and for type checkers it is the type that it is of.
"""


def is_secret(annotation: Any) -> bool:
    """Whether an annotation, a part of it, or a field of a class in it, is marked."""
    return _is_secret(annotation, set())


def _is_secret(annotation: Any, seen: set[type]) -> bool:
    if typing.get_origin(annotation) is Annotated and _MARK in annotation.__metadata__:
        return True
    parts = list(typing.get_args(annotation))
    if _has_fields(annotation) and annotation not in seen:
        seen.add(annotation)  # a class may have fields of itself
        parts += typing.get_type_hints(annotation, include_extras=True).values()
    return any(_is_secret(part, seen) for part in parts)


def _has_fields(annotation: Any) -> bool:
    """Whether it is a class whose fields are arguments too: a dataclass, struct or typed map."""
    return isinstance(annotation, type) and (
        dataclasses.is_dataclass(annotation)
        or hasattr(annotation, "__struct_fields__")
        or typing.is_typeddict(annotation)
        or hasattr(annotation, "_fields")
    )
