"""How an environment function becomes the key of a pooled service.

Two functions that would make the same environment share warm services: the key is the function
pickled by value with cloudpickle, with the versions of the modules that it refers to.
Pickling takes some 60 us for each function, more than borrowing a service does, so the pickle of a
function is remembered under its *essence*: its code and everything that it refers to.
A function that refers to something which can change unseen, such as a list, has no essence and is
pickled each time.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickletools
import sys
import sysconfig
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium

from forebay.errors import ConfigError
from forebay.gym._member import PooledEnvironment
from forebay.pool import Spec

EnvFunction = Callable[[], "gymnasium.Env[Any, Any]"]
Recipe = Spec[PooledEnvironment]

RECIPES_MAX = 256
"""Recipes remembered; the one unused for longest goes."""

DEPTH_MAX = 8
"""Functions that refer to functions are followed so far."""

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_recipes: OrderedDict[Any, Recipe] = OrderedDict()
_registered: tuple[tuple[int, ...], list[Any], bytes] = ((), [], b"")

_INSTALLED = tuple(
    os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib", "purelib")
)
"""Modules below these do not change while a program runs."""


class _Opaque(Exception):
    """Something that can change unseen."""


def recipes_of(functions: Sequence[EnvFunction]) -> list[Recipe]:
    """What to borrow for each of `functions`; the same function is examined once.

    Raises:
        As `recipe_of`.
    """
    registered = _own_environments()
    found: dict[int, Recipe] = {}
    for function in functions:
        if id(function) not in found:
            found[id(function)] = recipe_of(function, registered)
    return [found[id(function)] for function in functions]


def recipe_of(function: EnvFunction, registered: bytes) -> Recipe:
    """The spec of services that run the environment that `function` makes.

    Raises:
        ConfigError: it cannot be called, or cannot travel to another process.
    """
    if not callable(function):
        raise ConfigError(
            f"{function!r} is no environment function: give functions that take no argument and"
            " return an environment, as for AsyncVectorEnv"
        )
    try:
        essence = (_essence(function, 0), registered)
    except _Opaque:
        return _pickled(function, registered)
    known = _recipes.get(essence)
    if known is None:
        known = _recipes[essence] = _pickled(function, registered)
        if len(_recipes) > RECIPES_MAX:
            _recipes.popitem(last=False)
    else:
        _recipes.move_to_end(essence)
    return known


def _pickled(function: EnvFunction, registered: bytes) -> Recipe:
    data = _dumps(function)
    code = tuple((name, _version(name)) for name in sorted(set(_modules(data))))
    return PooledEnvironment.spec(data, registered, code)


def _dumps(value: Any) -> bytes:
    import cloudpickle  # type: ignore[import-not-found, import-untyped, unused-ignore]

    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:
        raise ConfigError(
            f"the environment function {value!r} cannot be pickled, so it cannot travel to another"
            f" process: {error}; make what it refers to inside of it"
        ) from error


def _essence(value: Any, depth: int) -> Any:
    """A value that is equal for what makes the same pickle; raises _Opaque without such a value."""
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if kind is tuple:
        return kind, tuple(_essence(each, depth) for each in value)
    if kind is types.ModuleType:
        return kind, value.__name__
    if depth >= DEPTH_MAX:
        raise _Opaque
    if kind is functools.partial:
        names = sorted(value.keywords)
        return (
            kind,
            _essence(value.func, depth + 1),
            _essence(value.args, depth),
            tuple((name, _essence(value.keywords[name], depth)) for name in names),
        )
    if kind is types.FunctionType or isinstance(value, type):
        module = getattr(value, "__module__", None)
        if _is_importable(value, module):
            return "named", module, value.__qualname__, _version(module)
    if kind is types.FunctionType and not value.__dict__:
        return _essence_of_code(value, depth + 1)
    raise _Opaque


def _essence_of_code(function: types.FunctionType, depth: int) -> Any:
    try:
        cells = tuple(cell.cell_contents for cell in function.__closure__ or ())
    except ValueError:  # a variable that has no value yet
        raise _Opaque from None
    scope = function.__globals__
    used = [(name, scope[name]) for name in _names(function.__code__) if name in scope]
    return (
        function.__code__,
        function.__module__,
        function.__qualname__,
        _essence(function.__defaults__, depth),
        _essence(tuple(sorted((function.__kwdefaults__ or {}).items())), depth),
        _essence(cells, depth),
        tuple((name, _essence(value, depth)) for name, value in used),
    )


@functools.lru_cache(maxsize=RECIPES_MAX)
def _names(code: types.CodeType) -> tuple[str, ...]:
    """The names that code may look up, in the code inside of it too."""
    inner = (each for each in code.co_consts if isinstance(each, types.CodeType))
    return (*code.co_names, *(name for each in inner for name in _names(each)))


def _is_importable(value: Any, module: Any) -> bool:
    """Whether cloudpickle sends it by name."""
    if not isinstance(module, str) or module == "__main__":
        return False
    found: Any = sys.modules.get(module)
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    cloudpickle: Any = sys.modules.get("cloudpickle")
    by_value = cloudpickle.list_registry_pickle_by_value() if cloudpickle else ()
    return found is value and module not in by_value


def _version(module: Any) -> tuple[int, int] | None:
    """Time and size of a module's file; None where it cannot change."""
    path = getattr(sys.modules.get(module), "__file__", None)
    if not path or path.startswith(_INSTALLED):
        return None
    with contextlib.suppress(OSError):
        found = os.stat(path)
        return found.st_mtime_ns, found.st_size
    return None


def _modules(data: bytes) -> Iterator[str]:
    """The modules that a pickle names; what is imported by other means is not found."""
    recent: list[Any] = ["", ""]
    memo: list[Any] = []
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name in ("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"):
            recent = [recent[-1], argument]
        elif opcode.name == "MEMOIZE":
            memo.append(recent[-1])
        elif opcode.name in ("BINGET", "LONG_BINGET"):
            recent = [recent[-1], memo[argument] if argument is not None else ""]
        elif opcode.name == "STACK_GLOBAL" and isinstance(recent[0], str):
            yield recent[0]


def _own_environments() -> bytes:
    """What this program registered with gymnasium, pickled, since services do not know it."""
    global _registered
    state = tuple(map(id, gymnasium.registry.values()))
    if state != _registered[0]:
        specs = list(gymnasium.registry.values())
        own = {spec.id: spec for spec in specs if not _is_built_in(spec)}
        # The specs are kept, so that no other one can get the id of one of them.
        _registered = (state, specs, _dumps(own) if own else b"")
    return _registered[2]


def _is_built_in(spec: Any) -> bool:
    return isinstance(spec.entry_point, str) and spec.entry_point.startswith("gymnasium.")
