"""The options of a submission, as the query of an address or an object in JSON has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from forebay.errors import ConfigError
from forebay.executor import Submit
from forebay.gateway.problems import Problem, invalid, refused_value

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

_KINDS: Final = {
    (int,): "an integer",
    (str,): "text",
    (list,): "a list of ids",
    (int, float): "a number",
    (str, int): "bytes, or text as '2GB'",
    (str, int, float): "seconds, or text as '5min'",
}


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
            raise _wrong(name, f"option {name} is given {len(values)} times", next="give it once")
        try:
            given[name] = read(values[0])
        except ValueError:
            raise _of_type(name, values[0]) from None
    return _on_wire(given)


def from_object(options: Any) -> dict[str, Any]:
    """The options on the wire, of those in a JSON object; None: there are none.

    Raises:
        Problem: it is no object, or as of `from_query`.
    """
    if options is None:
        return {}
    if not isinstance(options, dict):
        raise invalid("options", "an object", _shown(options))
    for name, value in options.items():
        types = _TYPES.get(name)
        if types is None:
            raise _unknown(name)
        if not isinstance(value, types) or isinstance(value, bool):
            raise _of_type(name, value)
    return _on_wire(options)


def _on_wire(given: dict[str, Any]) -> dict[str, Any]:
    after = given.get("after", ())
    if not all(isinstance(one, str) for one in after):
        raise invalid("after", "ids of requests", _shown(after))
    wire: dict[str, Any] = {}
    for name, value in given.items():
        try:
            wire |= Submit(**{name: value}).to_wire()
        except (ConfigError, OverflowError) as error:
            raise refused_value(name, error) from None
    return wire


def _unknown(name: str) -> Problem:
    names = ", ".join(_TYPES)
    return _wrong(
        name, f"there is no option {name!r:.100}", limit=names, next=f"the options are {names}"
    )


def _of_type(name: str, value: Any) -> Problem:
    return invalid(name, _KINDS[_TYPES[name]], _shown(value))


def _shown(value: Any) -> str:
    return f"{value!r:.100}"


def _wrong(name: str, message: str, *, limit: str | None = None, next: str = "") -> Problem:
    return Problem(422, "invalid", message, object=name[:100], limit=limit, next=next)
