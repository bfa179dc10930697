"""Which annotations a parameter or a result of a request may have.

Arguments and results are data: they are checked against a JSON Schema before a request is accepted,
kept in a database, and read by programs that do not have the application.
"""

from __future__ import annotations

import collections.abc
import enum
import types
import typing
from typing import Any

from forebay.errors import ConfigError
from forebay.executor.app.secret import is_secret

ALLOWED = (
    "None, bool, int, float, str, bytes, datetime, date, time, timedelta, Decimal, UUID, an Enum, "
    "a Literal, list, tuple, set, dict, a dataclass, a TypedDict, a NamedTuple, a msgspec.Struct, "
    "a numpy array, unions of those, and Any"
)

_SCALARS = frozenset({type(None), bool, int, float, str, bytes, bytearray, memoryview})
_NAMED = frozenset(
    {
        ("datetime", "datetime"),
        ("datetime", "date"),
        ("datetime", "time"),
        ("datetime", "timedelta"),
        ("decimal", "Decimal"),
        ("uuid", "UUID"),
    }
)
"""Module and name of scalars, which are not imported here: that takes 5 ms, and few use them."""

_CONTAINERS = frozenset(
    {
        list,
        tuple,
        set,
        frozenset,
        dict,
        collections.abc.Sequence,
        collections.abc.MutableSequence,
        collections.abc.Collection,
        collections.abc.Set,
        collections.abc.MutableSet,
        collections.abc.Mapping,
        collections.abc.MutableMapping,
    }
)
_UNIONS = frozenset({typing.Union, types.UnionType})


def is_array(annotation: Any) -> bool:
    """Whether an annotation names numpy's array, without importing numpy."""
    origin = typing.get_origin(annotation) or annotation
    return (
        isinstance(origin, type)
        and origin.__name__ == "ndarray"
        and origin.__module__.partition(".")[0] == "numpy"
    )


def check_type(annotation: Any, what: str) -> None:
    """Refuse an annotation that names no data.

    Args:
        annotation: a type, evaluated; not a string.
        what: whose annotation it is, as in "parameter 'image' of request 'classify'".

    Raises:
        ConfigError: values of that type cannot be sent; the message names the types that can.

    Cost: microseconds for plain types; classes and unions load msgspec, which checks what they are
    made of.
    """
    refused = _refused(annotation)
    if refused is not None:
        raise ConfigError(
            f"{what} is annotated with {shown(annotation)}, and {shown(refused)} is no data that "
            f"a request can be sent; use one of: {ALLOWED}"
        )
    if _is_plain(annotation):
        return
    from msgspec import msgpack

    try:
        msgpack.Decoder(annotation)
    except Exception as error:  # of many kinds, from the evaluation of its fields
        raise ConfigError(
            f"{what} is annotated with {shown(annotation)}, which cannot be read back: {error}; "
            f"use one of: {ALLOWED}"
        ) from error


def shown(annotation: Any) -> str:
    """An annotation as a user would write it."""
    if annotation is type(None):
        return "None"
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return annotation.__qualname__
    if typing.get_origin(annotation) is typing.Annotated and is_secret(annotation):
        return f"Secret[{shown(typing.get_args(annotation)[0])}]"
    return str(annotation).replace("typing.", "")


def _refused(annotation: Any) -> Any:
    """The part of an annotation that names no data; None where there is none."""
    if _is_leaf(annotation):
        return None
    origin = typing.get_origin(annotation)
    if origin is None:
        return None if _is_data_class(annotation) else annotation
    if origin is typing.Literal:
        return None
    if origin is typing.Annotated:
        return _refused(typing.get_args(annotation)[0])
    if origin not in _UNIONS and origin not in _CONTAINERS and not _is_data_class(origin):
        return annotation
    parts = (part for part in typing.get_args(annotation) if part is not Ellipsis)
    return next((found for part in parts if (found := _refused(part)) is not None), None)


def _is_leaf(annotation: Any) -> bool:
    if annotation is Any or annotation is None or is_array(annotation):
        return True
    if not isinstance(annotation, type):
        return False
    return annotation in _SCALARS or (annotation.__module__, annotation.__qualname__) in _NAMED


def _is_data_class(annotation: Any) -> bool:
    """Whether it is a class of data, or a container of anything."""
    if not isinstance(annotation, type):
        return isinstance(annotation, typing.NewType | typing.TypeVar)
    return (
        annotation in _CONTAINERS
        or issubclass(annotation, enum.Enum)
        or hasattr(annotation, "__dataclass_fields__")
        or hasattr(annotation, "__struct_fields__")
        or hasattr(annotation, "__attrs_attrs__")
        or typing.is_typeddict(annotation)
        or (issubclass(annotation, tuple) and hasattr(annotation, "_fields"))
    )


def _is_plain(annotation: Any) -> bool:
    """Whether msgspec need not check it: scalars, containers of them, and `| None` of those."""
    if _is_leaf(annotation):
        return True
    origin = typing.get_origin(annotation)
    if origin is None:
        return isinstance(annotation, type) and annotation in _CONTAINERS
    if origin is typing.Literal:
        return True
    parts = [part for part in typing.get_args(annotation) if part is not Ellipsis]
    if origin in _UNIONS:
        parts = [part for part in parts if part is not type(None)]
        return len(parts) == 1 and _is_plain(parts[0])
    if origin is dict:
        return parts[0] in (str, int) and _is_plain(parts[1])
    return origin in (list, tuple) and all(map(_is_plain, parts))
