"""Classes and functions that travel themselves, because no other process could import them.

Those of a notebook's cells, mostly. What travels is a pickle of cloudpickle: the code, the
variables that it uses, and whatever these use. It is made only for a caller who asks for it by
name, and read only by processes of the same program.

Classes and functions of a main module that it contains are also put into the main module of the
process that reads it, so that plain pickles of their instances work in both directions; and that
module's variables are those of its functions there.
"""

from __future__ import annotations

import contextlib
import functools
import io
import pickle
import sys
import threading
from collections.abc import Iterator
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from forebay.errors import ConfigError, LimitError

BYTES_MAX = 16 << 20
"""Of what is sent: each new service and each worker gets it, so data belongs elsewhere."""

KEPT_MAX = 64
"""Things that one `Values` keeps pickled."""

_MAIN = "__main__"
_MISSING: Any = object()
_SCALARS = (bool, int, float, complex, str, bytes, type(None))
_READS_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL"})


class Use(NamedTuple):
    """A variable that sent code uses, of its module or of a function around it, and its value."""

    where: str
    holder: dict[str, Any] | CellType
    name: str
    value: Any

    def holds(self) -> bool:
        """Whether it still refers to that, or to an equal number or text."""
        now = _content(self.holder, self.name)
        if now is self.value:
            return True
        return type(now) is type(self.value) and type(now) in _SCALARS and now == self.value


class Value:
    """A class or a function as it was pickled.

    Attributes:
        what: the class or the function.
        data: its pickle, for `received`.
    """

    __slots__ = ("_uses", "data", "what")

    def __init__(self, what: Any, data: bytes, uses: tuple[Use, ...]) -> None:
        self.what = what
        self.data = data
        self._uses = uses

    def is_current(self) -> bool:
        """Whether its variables refer to what they did. What is changed in place is not noticed."""
        return all(use.holds() for use in self._uses)


class Values:
    """The values that one pool or executor has sent. Thread-safe."""

    __slots__ = ("_kept", "_lock")

    def __init__(self) -> None:
        self._kept: dict[int, Value] = {}
        """By the identity of what was sent, which its value keeps alive; the newest use is last."""
        self._lock = threading.Lock()

    def of(self, what: Any) -> Value:
        """A class or function as it is now. Raises as `value_of`."""
        known = self._kept.get(id(what))
        if known is None or not known.is_current():
            known = value_of(what)  # not under the lock: it may run code of the user
        with self._lock:
            self._kept.pop(id(what), None)
            self._kept[id(what)] = known
            if len(self._kept) > KEPT_MAX:
                del self._kept[next(iter(self._kept))]
        return known


def value_of(what: Any) -> Value:
    """Pickle a class, a function or arguments, with what the code uses.

    Raises:
        ConfigError: cloudpickle is missing, or a part cannot be pickled; it says which.
        LimitError: it is longer than `BYTES_MAX`.
    """
    sink = io.BytesIO()
    pickler = _pickler_class()(sink, protocol=5)
    try:
        # What the second one refers to is pickled by then; only references to it follow.
        pickler.dump((what, pickler.of_main))
    except Exception as error:
        raise _unfit(what, pickler.functions, pickler.classes, error) from error
    data = sink.getvalue()
    uses = tuple(use for function in pickler.functions for use in _uses_of(function))
    if len(data) > BYTES_MAX:
        raise _too_long(what, len(data), uses)
    return Value(what, data, uses)


def made_by_value(value: Value, args: Any, kwargs: dict[str, Any]) -> tuple[bytes, bytes]:
    """How a service is made of a class by value: the class, and its arguments by value too."""
    return value.data, value_of((args, sorted(kwargs.items()))).data


def received(data: bytes) -> Any:
    """What was pickled, in the process that it was sent to."""
    what, of_main = pickle.loads(data)  # from a process of this user, which asked for it by name
    _main_namespace().update(of_main)
    return what


@functools.cache
def _pickler_class() -> Any:
    """A pickler of cloudpickle that notes what it pickles by value.

    Raises:
        ConfigError: the package is not installed.
    """
    try:
        import cloudpickle  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError as error:
        raise ConfigError(
            "by_value=True needs the package cloudpickle: pip install cloudpickle"
        ) from error

    class NotingPickler(cloudpickle.Pickler):  # type: ignore[misc, unused-ignore]
        def __init__(self, file: io.BytesIO, protocol: int) -> None:
            super().__init__(file, protocol=protocol)
            self.functions: list[FunctionType] = []
            self.classes: list[type] = []
            self.of_main: dict[str, Any] = {}
            # cloudpickle gives the functions of one pickle a namespace of their own. Those of the
            # main module get the receiver's, so that an initializer may set what others read.
            self.globals_ref[id(_main_namespace())] = _MainNamespace(__name__=_MAIN)

        def reducer_override(self, obj: Any) -> Any:
            reduced = super().reducer_override(obj)
            if reduced is not NotImplemented:
                if isinstance(obj, FunctionType):
                    self.functions.append(obj)
                else:
                    self.classes.append(obj)
                self._note_main(obj)
            return reduced

        def _note_main(self, obj: Any) -> None:
            name = obj.__qualname__
            if obj.__module__ != _MAIN or not name.isidentifier():
                return
            # Of several with one name, the one that the name leads to.
            if name not in self.of_main or _main_namespace().get(name) is obj:
                self.of_main[name] = obj

    return NotingPickler


class _MainNamespace(dict[str, Any]):
    """Stands for the variables of the main module, and unpickles as those of the receiver."""

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return _main_namespace, ()


def _main_namespace() -> dict[str, Any]:
    return vars(sys.modules[_MAIN])


def _uses_of(function: FunctionType) -> Iterator[Use]:
    """The variables that a function uses and that are not its own; those without a value apart."""
    names = dict.fromkeys(_global_names(function.__code__))
    holders: list[tuple[str, Any]] = [(name, function.__globals__) for name in names]
    holders += zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, holder in holders:
        value = _content(holder, name)
        if value is not _MISSING:
            yield Use(function.__qualname__, holder, name, value)


def _content(holder: dict[str, Any] | CellType, name: str) -> Any:
    """The value of a variable now."""
    if isinstance(holder, dict):
        return holder.get(name, _MISSING)
    try:
        return holder.cell_contents
    except ValueError:
        return _MISSING


def _global_names(code: CodeType) -> Iterator[str]:
    import dis

    for instruction in dis.get_instructions(code):
        if instruction.opname in _READS_GLOBAL:
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)


def _parts(functions: list[FunctionType], classes: list[type]) -> Iterator[tuple[str, str, Any]]:
    """What may be at fault, as where it is, its name and its value; the deepest first."""
    for function in reversed(functions):
        for use in _uses_of(function):
            yield f"{use.where} uses", use.name, use.value
    for owner in reversed(classes):
        for name, value in vars(owner).items():
            if not name.startswith("__"):
                yield f"{owner.__qualname__} has", name, value


def _unfit(
    what: Any, functions: list[FunctionType], classes: list[type], error: Exception
) -> ConfigError:
    """The error for what cannot be pickled, which names the variable at fault if one is found."""
    for where, name, value in _parts(functions, classes):
        reason = _failure(value)
        if reason is not None:
            kind = type(value)
            return ConfigError(
                f"{_called(what)} cannot go by value: {where} {name!r}, a "
                f"{kind.__module__}.{kind.__qualname__}, which cannot be pickled ({reason}); make "
                "it where it is used, for a service in __init__, or pass what it is made of"
            )
    return ConfigError(f"{_called(what)} cannot go by value: {error}")


def _failure(value: Any) -> str | None:
    """Why a value cannot be pickled; None where it can, or is named by what it uses itself."""
    if isinstance(value, (FunctionType, type, ModuleType, staticmethod, classmethod, property)):
        return None
    try:
        _pickler_class()(io.BytesIO(), protocol=5).dump(value)
    except Exception as error:
        return str(error)
    return None


def _too_long(what: Any, size: int, uses: tuple[Use, ...]) -> LimitError:
    """The error for what is too long, which names the largest variable."""
    sizes = [(_size(use.value), use) for use in uses]
    large, use = max(sizes, key=lambda one: one[0], default=(0, None))
    named = "" if use is None else f", {large} of them of {use.name!r}, which {use.where} uses"
    return LimitError(
        f"{_called(what)} by value has {size} bytes{named}; at most {BYTES_MAX} are sent to each "
        "process: read large data there, from a file or from forebay.TensorServer",
        limit=BYTES_MAX,
        value=size,
    )


def _size(value: Any) -> int:
    sink = io.BytesIO()
    with contextlib.suppress(Exception):  # what cannot be pickled alone is not the largest
        _pickler_class()(sink, protocol=5).dump(value)
    return len(sink.getvalue())


def _called(what: Any) -> str:
    """The name of what was to be sent, for a message."""
    while isinstance(what, functools.partial):
        what = what.args[0] if what.args else what.func
    name = getattr(what, "__qualname__", None)
    return "what was passed" if name is None else str(name)
