"""The mark of secret arguments, which are sealed on disk and shown nowhere."""

from __future__ import annotations

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
    """Whether an annotation, or a part of it, is marked."""
    if typing.get_origin(annotation) is Annotated and _MARK in annotation.__metadata__:
        return True
    return any(map(is_secret, typing.get_args(annotation)))
