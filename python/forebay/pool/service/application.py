"""Which application a template imports, and how a service process finds a class."""

from __future__ import annotations

import os
import sys
from typing import Any, Literal, NamedTuple

from forebay.errors import ConfigError

_importing_main = False
"""True in a template while it imports somebody's main module."""

MAIN_ALIAS = "__mp_main__"
"""The name that multiprocessing's spawn gives to a main module imported in another process."""


class Application(NamedTuple):
    """What a template imports before it forks.

    `kind` says what `target` is: a module's name, the path of a script, the module that was run
    with `python -m`, or nothing to import (a class that is sent by value).
    """

    kind: Literal["module", "path", "main", "none"]
    target: str

    def load(self) -> None:
        """Import it into this process; raises what the import raises."""
        if self.kind == "module":
            __import__(self.target)
        elif self.kind != "none":
            _load_main(self.kind, self.target)


def application_of(service: type, *, by_value: bool) -> Application:
    """The application that defines a service class.

    Raises:
        ConfigError: another process could not import the class; the message says what to do.
    """
    module = service.__module__
    if by_value:
        return Application("none", "")
    if "<lambda>" in service.__qualname__:
        raise ConfigError(
            "a lambda has no name by which another process could find it; "
            "write a function at the top level of a module, or acquire with by_value=True"
        )
    if "<locals>" in service.__qualname__:
        raise ConfigError(
            f"service class {service.__qualname__} is defined inside a function, "
            "where another process cannot find it; move it to the top level of a module, "
            "or acquire it with by_value=True"
        )
    if module not in ("__main__", MAIN_ALIAS):
        return Application("module", module)
    main = sys.modules["__main__"]
    # A service may return an object whose class has the alias as its module.
    sys.modules.setdefault(MAIN_ALIAS, main)
    spec = getattr(main, "__spec__", None)
    path = getattr(main, "__file__", None)
    if spec is not None and spec.name == "__main__" and path is not None:
        path = os.path.dirname(path)  # a directory or an archive was run
    elif spec is not None and spec.name:
        return Application("main", spec.name)
    if path is None or not os.path.exists(path):
        raise ConfigError(
            f"service class {service.__qualname__} was typed into an interactive session, "
            "which another process cannot import; put it into a module, "
            "or acquire it with by_value=True"
        )
    return Application("path", os.path.abspath(path))


def reference_of(service: type) -> tuple[str, str]:
    """How a service process finds a class that it can import: by module and qualified name."""
    return service.__module__, service.__qualname__


def resolve(reference: tuple[str, str]) -> Any:
    """The class behind a reference, in a service process."""
    module, qualified_name = reference
    found: Any = sys.modules[module]
    try:
        for name in qualified_name.split("."):
            found = getattr(found, name)
    except AttributeError:
        raise AttributeError(
            f"module {module!r} has no {qualified_name!r} once it is imported in another process; "
            "define it at the top level, outside of `if __name__ == '__main__':`"
        ) from None
    return found


def refuse_in_template() -> None:
    """Raise where a main module without a guard uses a pool while a template imports it."""
    if _importing_main:
        raise ConfigError(
            "this main module uses a pool while a template imports it to find its service classes; "
            "put the code that runs the program under:  if __name__ == '__main__':"
        )


def _load_main(kind: str, target: str) -> None:
    """Import a main module under a name that keeps its guarded part from running.

    multiprocessing does the same.
    """
    import runpy
    import types

    global _importing_main
    main = types.ModuleType(MAIN_ALIAS)
    _importing_main = True
    try:
        if kind == "main":
            content = runpy.run_module(target, run_name=MAIN_ALIAS, alter_sys=True)
        else:
            content = runpy.run_path(target, run_name=MAIN_ALIAS)
    finally:
        _importing_main = False
    main.__dict__.update(content)
    sys.modules["__main__"] = sys.modules[MAIN_ALIAS] = main
