"""What TARGET means: `tune.py`, `tune.py:app`, `package.module:request`."""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Literal

from forebay._working_directory import working_directory
from forebay.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Target:
    """An application, and perhaps a name in it; nothing of it is imported.

    Attributes:
        text: as it was given.
        kind: how it is imported: "module" by name, "path" by running the file as a module.
        where: the module's name, or the file's absolute path.
        directory: the first entry of `sys.path` for that import.
        file: the source file, with symbolic links resolved; it identifies the application.
        attribute: the name after the colon, an App or one of its requests; None: no name.
    """

    text: str
    kind: Literal["module", "path"]
    where: str
    directory: str
    file: Path
    attribute: str | None = None


def looks_like_target(text: str) -> bool:
    """Whether a word of the command line is a TARGET rather than the NAME of a request."""
    application = text.partition(":")[0]
    return ":" in text or application.endswith(".py") or "/" in application


def parse_target(text: str, *, directory: str | os.PathLike[str] | None = None) -> Target:
    """Find the source file of an application, without importing it.

    Args:
        text: `path/tune.py`, `package.module`, or one of them followed by `:name`.
        directory: the start for relative paths and modules; default: the current directory.

    Raises:
        ConfigError: there is no such file or module; the message says where it was looked for. Or
            it is relative to a current directory that was removed, or this user may not read it.
    """
    application, colon, attribute = text.partition(":")
    if not application or (colon and not attribute):
        raise ConfigError(
            f"target {text!r} is not complete; write FILE.py:NAME or PACKAGE.MODULE:NAME"
        )
    is_file = application.endswith(".py") or "/" in application
    if is_file and os.path.isabs(application):
        return _of_file(text, Path(application), attribute or None)
    start = Path(working_directory() if directory is None else directory).absolute()
    if is_file:
        return _of_file(text, start / application, attribute or None)
    return _of_module(text, application, start, attribute or None)


def _of_file(text: str, path: Path, attribute: str | None) -> Target:
    try:
        found = stat.S_ISREG(path.stat().st_mode)  # `is_file` may hide that a folder is closed
        closed = found and not os.access(path, os.R_OK)
    except PermissionError:
        found, closed = False, True
    except (OSError, ValueError):
        found = closed = False
    if closed:
        raise ConfigError(
            f"target {text!r}: this user may not read {path}, or not enter a folder above it; "
            "open them (chmod o+r, chmod o+x), or run this as their owner"
        )
    if not found:
        raise ConfigError(f"target {text!r}: there is no file {path}; check the path")
    # The name under which its own package imports it, so that it is imported only once.
    names, directory = [path.stem], path.parent
    while (directory / "__init__.py").is_file():
        names.insert(0, directory.name)
        directory = directory.parent
    if path.name == "__init__.py":
        names.pop()
    imported = all(name.isidentifier() for name in names) and not _is_taken(names[0])
    return Target(
        text=text,
        kind="module" if imported else "path",
        where=".".join(names) if imported else str(path),
        directory=str(directory),
        file=path.resolve(),
        attribute=attribute,
    )


def _is_taken(name: str) -> bool:
    """Whether importing a top-level module of that name may give another one."""
    return name in sys.stdlib_module_names or name in ("forebay", "msgspec", "numpy", "__main__")


def _of_module(text: str, module: str, start: Path, attribute: str | None) -> Target:
    spec = _find(module, [str(start), *sys.path])
    if spec is None or spec.origin is None or not os.path.isfile(spec.origin):
        raise ConfigError(
            f"target {text!r}: there is no module {module!r} in {start} or on sys.path; "
            "for a file write its path, as in ./tune.py:app"
        )
    return Target(
        text=text,
        kind="module",
        where=module,
        directory=str(start),
        file=Path(spec.origin).resolve(),
        attribute=attribute,
    )


def _find(module: str, path: list[str]) -> ModuleSpec | None:
    """The spec of a module without importing its packages, as `importlib.util` would."""
    spec: ModuleSpec | None = None
    full = ""
    for name in module.split("."):
        full = f"{full}.{name}" if full else name
        spec = PathFinder.find_spec(full, path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or ())
    return spec
