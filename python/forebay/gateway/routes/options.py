"""The options of a submission, as the query of an address or an object in JSON has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from forebay.errors import ConfigError
from forebay.executor import Submit
from forebay.gateway.problems import Problem

__all__ = ["from_object", "from_query"]


def _number(text: str) -> str | float:
    """Text of a number alone as a number, in the unit of its option."""
    try:
        return float(text)
    except ValueError:
        return text


def _bytes(text: str) -> str | int:
    return int(text) if text.isascii() and text.isdigit() else text


_READ: Final[dict[str, Callable[[str], Any]]] = {
    "priority": int,
    "timeout": _number,
    "retries": int,
    "backoff": _number,
    "max_backoff": _number,
    "key": str,
    "key_at_once": int,
    "memory": _bytes,
    "cpu": float,
    "delay": _number,
    "lane": str,
}
"""How each is read from the text of a query; `after` alone may be repeated."""

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "priority": (int,),
    "timeout": (str, int, float),
    "retries": (int,),
    "backoff": (str, int, float),
    "max_backoff": (str, int, float),
    "key": (str,),
    "key_at_once": (int,),
    "memory": (str, int),
    "cpu": (int, float),
    "after": (list,),
    "delay": (str, int, float),
    "lane": (str,),
}
"""What each may be in JSON."""


def from_query(query: Mapping[str, list[str]]) -> dict[str, Any]:
    """The options on the wire.

    Raises:
        Problem: there is no such option, it is given twice, or its value is wrong.
    """
    given: dict[str, Any] = {}
    for name, values in query.items():
        if name == "after":
            given[name] = values
            continue
        read = _READ.get(name)
        if read is None:
            raise _unknown(name)
        if len(values) > 1:
            raise _wrong(name, f"option {name} is given {len(values)} times; give it once")
        try:
            given[name] = read(values[0])
        except ValueError:
            raise _wrong(name, f"option {name} is {values[0]!r:.100}; give a number") from None
    return _on_wire(given)


def from_object(options: Any) -> dict[str, Any]:
    """The options on the wire, of those in a JSON object; None: there are none.

    Raises:
        Problem: it is no object, or as of `from_query`.
    """
    if options is None:
        return {}
    if not isinstance(options, dict):
        raise _wrong("options", "options: expected an object")
    for name, value in options.items():
        types = _TYPES.get(name)
        if types is None:
            raise _unknown(name)
        if not isinstance(value, types) or isinstance(value, bool):
            raise _wrong(name, f"option {name} is {value!r:.100}, which is of another type")
    return _on_wire(options)


def _on_wire(given: dict[str, Any]) -> dict[str, Any]:
    after = given.get("after", ())
    if not all(isinstance(one, str) for one in after):
        raise _wrong("after", "option after: expected ids")
    wire: dict[str, Any] = {}
    for name, value in given.items():
        try:
            wire |= Submit(**{name: value}).to_wire()
        except (ConfigError, OverflowError) as error:
            raise _wrong(name, f"option {name}: {error}") from None
    return wire


def _unknown(name: str) -> Problem:
    return _wrong(name, f"there is no option {name!r:.100}; the options are {', '.join(_TYPES)}")


def _wrong(name: str, message: str) -> Problem:
    return Problem(422, "invalid", message, object=name[:100])
