"""Finding state that leaks from one lease to the next, by comparison with a new service.

It compares the attributes of the service, plain data in its module, and the working directory,
environment, open descriptors and threads of the process.
A value is compared by its pickle, or by type and length where that is too large or fails.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from collections.abc import Iterator
from typing import Any

from forebay._working_directory import path_to_tell_apart

VALUE_BYTES_MAX = 16 * 1024
"""Bytes of a value's pickle that are compared; larger ones are compared by type and length."""

VALUES_MAX = 256
"""Values that are compared."""

_PLAIN = (bool, int, float, complex, str, bytes, bytearray, list, dict, set, frozenset, tuple)


class Canary:
    """The fingerprint of a new service, with which later ones are compared.

    `service.canary_ignores` names attributes and module variables that may differ, such as caches.
    """

    __slots__ = ("_first",)

    def __init__(self, service: Any) -> None:
        self._first = dict(fingerprint(service))

    def differences(self, service: Any) -> list[str]:
        """The names of what has changed since the service was new."""
        now = dict(fingerprint(service))
        names = {**self._first, **now}
        return [name for name in names if self._first.get(name) != now.get(name)]


def fingerprint(service: Any) -> Iterator[tuple[str, str]]:
    """Names and digests of what is compared."""
    ignored = frozenset(getattr(service, "canary_ignores", ()))
    module = sys.modules.get(type(service).__module__)
    attributes = getattr(service, "__dict__", {})
    variables = {
        name: value
        for name, value in vars(module).items()
        if type(value) in _PLAIN and not name.startswith("__")
    }
    yield from _digests("attribute", attributes, ignored)
    yield from _digests("module variable", variables, ignored)
    yield "working directory", path_to_tell_apart()
    yield "environment", _digest(sorted(os.environ.items()))
    yield "open descriptors", str(len(os.listdir("/proc/self/fd")))
    yield "threads", str(len(os.listdir("/proc/self/task")))


def _digests(
    what: str, values: dict[str, Any], ignored: frozenset[str]
) -> Iterator[tuple[str, str]]:
    for name in list(values)[:VALUES_MAX]:
        if name not in ignored:
            yield f"{what} {name!r}", _digest(values[name])


def _digest(value: Any) -> str:
    sink = _Sink()
    pickler = pickle.Pickler(sink, protocol=5)
    pickler.fast = True  # equal values alike, whether or not they share objects
    try:
        pickler.dump(_ordered(value))
    except Exception:  # a class of the user may raise anything
        return f"{type(value).__qualname__} {_length(value)}"
    return sink.digest.hexdigest()


def _ordered(value: Any) -> Any:
    """Plain sets and dictionaries in a fixed order."""
    if type(value) in (set, frozenset):
        return sorted(value, key=repr)
    if type(value) is dict:
        return sorted(value.items(), key=repr)
    return value


def _length(value: Any) -> str:
    try:
        return str(len(value))
    except Exception:
        return ""


class _Sink:
    """Takes the bytes of a pickle, up to the limit."""

    def __init__(self) -> None:
        self.digest = hashlib.blake2b(digest_size=16)
        self._room = VALUE_BYTES_MAX

    def write(self, data: bytes) -> int:
        """Add to the digest."""
        self._room -= len(data)
        if self._room < 0:
            raise OverflowError
        self.digest.update(data)
        return len(data)
