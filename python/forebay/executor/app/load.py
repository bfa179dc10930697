"""Importing an application, in its template: the App behind a TARGET."""

from __future__ import annotations

import difflib
import os
import sys
from typing import TYPE_CHECKING, Any, Literal

from forebay._working_directory import path_to_tell_apart
from forebay.errors import ConfigError
from forebay.executor.app.finder import OwnFinder
from forebay.pool._internal import MAIN_ALIAS, Application

if TYPE_CHECKING:
    from forebay.executor.app.application import App

Kind = Literal["module", "path", "main", "none"]


def load(kind: Kind, target: str, directory: str | None) -> dict[str, Any] | None:
    """Import an application into this process; the names of its module, or None without a module.

    Args:
        kind: how `target` is read, as in `forebay.pool.service.application.Application`.
        target: a module's name or a file's path.
        directory: becomes the first of `sys.path` before the import.

    Raises:
        ConfigError: there is no such file.
        Whatever the import raises.
    """
    if kind == "path" and not os.path.isfile(target):
        raise ConfigError(f"there is no file {target}; check the path")
    if directory is not None:
        if directory in sys.path:
            sys.path.remove(directory)
        sys.path.insert(0, directory)
    if kind != "none":
        root = directory or os.path.dirname(target) or path_to_tell_apart()
        if root:
            OwnFinder.install(root)
    Application(kind, target).load()
    if kind == "none":
        return None
    return vars(sys.modules[target if kind == "module" else MAIN_ALIAS])


def find_app(names: dict[str, Any], attribute: str | None, where: str) -> App:
    """The App that a TARGET names.

    Args:
        names: of the module.
        attribute: an App in it or one of its requests; None: the only App of the module.
        where: the module's name for messages.

    Raises:
        ConfigError: no App has that name, the module has no App, or it has several.
    """
    from forebay.executor.app.application import App

    if attribute is not None:
        return _named(names, attribute, where)
    own = {id(value): (name, value) for name, value in names.items() if isinstance(value, App)}
    if len(own) == 1:
        return next(iter(own.values()))[1]
    # By a request in the module, if the App itself has no name in it.
    used = {id(app): app for value in names.values() if (app := _app_of(value)) is not None}
    if not own and len(used) == 1:
        return next(iter(used.values()))
    if not own:
        raise ConfigError(
            f'{where} has no forebay.App at its top level; write app = forebay.App("name") and '
            "decorate a function with @app.request()"
        )
    listed = ", ".join(name for name, _ in own.values())
    raise ConfigError(
        f"{where} has {len(own)} apps ({listed}); say which one, as in "
        f"{where}:{next(iter(own.values()))[0]}"
    )


def _named(names: dict[str, Any], attribute: str, where: str) -> App:
    from forebay.executor.app.application import App

    value = names.get(attribute)
    if isinstance(value, App):
        return value
    app = _app_of(value)
    if app is not None:
        return app
    # A request's name need not be that of its function.
    apps = {id(one): one for one in names.values() if isinstance(one, App)}
    for one in apps.values():
        if attribute in one.requests:
            return one
    if attribute in names:
        raise ConfigError(
            f"{where}:{attribute} is neither a forebay.App nor a request of one, but "
            f"{type(value).__qualname__}; decorate it with @app.request()"
        )
    known = [name for name, one in names.items() if isinstance(one, App) or _app_of(one)]
    near = difflib.get_close_matches(attribute, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else f" (it has: {', '.join(known) or 'none'})"
    raise ConfigError(f"{where} has no app or request {attribute!r}{hint}")


def _app_of(value: Any) -> App | None:
    from forebay.executor.app.application import App
    from forebay.executor.app.definition import Definition

    definition = getattr(value, "definition", None)
    if isinstance(definition, Definition) and isinstance(definition.app, App):
        return definition.app
    return None
