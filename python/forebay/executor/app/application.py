"""An application: the requests that a server runs, and the services that they need."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping
from types import CodeType, MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    Protocol,
    TypeVar,
    overload,
)

from forebay.errors import ConfigError
from forebay.executor.app.context import Context
from forebay.executor.app.definition import Decorated, Definition, callable_without_context
from forebay.executor.app.options import RequestOptions
from forebay.executor.app.services import AppService, services_of

if TYPE_CHECKING:
    from forebay.executor.app.options import Lane
    from forebay.pool import Command, Service, Spec

P = ParamSpec("P")
R = TypeVar("R")

NAME_CHARS_MAX = 100
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*", re.ASCII)


class Decorator(Protocol):
    """What `App.request` returns."""

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Decorated[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Decorated[P, R]: ...


class App:
    """A named set of requests, defined at the top level of a module that can be imported.

    A server never imports it: its template does, once, and forks the workers.
    So importing the module must not run the program; put that under `if __name__ == "__main__":`.

    Args:
        name: for messages, and in the names of the server's directories.
        submitter: of requests whose submission names none; submitters take turns.

    Example:
        >>> import forebay
        >>> app = forebay.App("digits")
        >>> @app.request(lane="short", memory="100MB")
        ... def classify(ctx: forebay.Context, index: int = 0) -> int:
        ...     return index + 1
        >>> classify(index=6)      # still the function: it runs here, nothing is submitted
        7
    """

    def __init__(self, name: str, *, submitter: str | None = None) -> None:
        self.name = _checked_name("app", name)
        self.submitter = submitter
        self._requests: dict[str, Definition] = {}
        self._services: list[AppService] = []
        self._module: Mapping[str, Any] = sys._getframe(1).f_globals

    @property
    def requests(self) -> Mapping[str, Definition]:
        """Its requests by name, in the order of their definition; read-only."""
        return MappingProxyType(self._requests)

    @property
    def services(self) -> tuple[AppService, ...]:
        """The services that are kept warm for it."""
        return tuple(self._services)

    @property
    def target(self) -> str | None:
        """Where a server finds it, as "/path/to/tune.py:app"; None: it has no name in a file."""
        path = self._module.get("__file__")
        if not path or not os.path.isfile(path):
            return None
        names = (name for name, value in list(self._module.items()) if value is self)
        attribute = next(names, None)
        return None if attribute is None else f"{os.path.abspath(path)}:{attribute}"

    @overload
    def request(self, function: Callable[Concatenate[Context, P], R], /) -> Decorated[P, R]: ...

    @overload
    def request(self, function: Callable[P, R], /) -> Decorated[P, R]: ...

    @overload
    def request(
        self,
        name: str | None = None,
        *,
        lane: Lane | None = None,
        priority: int = 0,
        timeout: str | float | None = None,
        retries: int = 0,
        backoff: str | float = "1s",
        max_backoff: str | float = "5min",
        idempotent: bool = False,
        memory: str | int | None = None,
        cpu: float = 1.0,
        concurrency: int | None = None,
        concurrency_key: str | None = None,
        cron: str | None = None,
        ahead: int = 0,
        retention: str | float | None = None,
    ) -> Decorator: ...

    def request(
        self,
        name: str | Callable[..., Any] | None = None,
        *,
        lane: Lane | None = None,
        priority: int = 0,
        timeout: str | float | None = None,
        retries: int = 0,
        backoff: str | float = "1s",
        max_backoff: str | float = "5min",
        idempotent: bool = False,
        memory: str | int | None = None,
        cpu: float = 1.0,
        concurrency: int | None = None,
        concurrency_key: str | None = None,
        cron: str | None = None,
        ahead: int = 0,
        retention: str | float | None = None,
    ) -> Any:
        """Make a function a request; it can still be called and imported as before.

        Without options it is written `@app.request`.
        Parameters and result are data: JSON types, bytes, datetime (an aware one arrives in UTC),
        dataclasses, msgspec structs, numpy arrays; a `forebay.Context` is that of the run.
        What a generator yields are items, which `Request.items` reads while it runs; they are data
        too, of the type in `Iterator[T]`, `Generator[T, None, R]` or `AsyncIterator[T]`.

        Args:
            name: under which it is submitted; default: the function's.
            lane: "short" (it never waits behind long ones) or "long"; default: "long", and "async"
                for an `async def`, which shares one process with thousands of others.
            priority: higher runs first, within a lane and a submitter.
            timeout: seconds that one attempt may run, or text such as "30s".
            retries: further attempts where one failed or its worker died; with 0 it runs once.
            backoff: seconds before the second attempt, doubled before each further one.
            max_backoff: the longest of these times.
            idempotent: it may run again if it is not known whether it ran.
            memory: private memory that it needs, as in "100MB"; default: what was measured.
            cpu: cores that it uses.
            concurrency: how many may run at once, for each value of `concurrency_key`.
            concurrency_key: name of a parameter.
            cron: when the server submits it by itself, as in "*/5 * * * *"; it needs no arguments.
            ahead: further requests of its name that a worker may get while it runs one, 0 to 64;
                for short work without `await`, which then costs half as much. One that waits behind
                a run of over 25 ms is queued again, unless that run is busy outside Python.
            retention: how long it is kept once it has ended, as in "30d" or "1h", in the place of
                the server's `retention_age`; the server looks once a minute.

        Raises:
            ConfigError: an option is wrong, the name is taken, or the type of a parameter is not
                data. An annotation that names something defined later is checked at use.
        """
        given: dict[str, Any] = {"lane": lane, "priority": priority, "timeout": timeout}
        given |= {"retries": retries, "backoff": backoff, "max_backoff": max_backoff}
        given |= {"idempotent": idempotent, "memory": memory, "cpu": cpu, "cron": cron}
        given |= {"concurrency": concurrency, "concurrency_key": concurrency_key}
        given |= {"ahead": ahead, "retention": retention}

        if callable(name):
            return self._add(name, None, given)

        def decorate(function: Any) -> Any:
            return self._add(function, name, given)

        return decorate

    def service(
        self,
        what: type[Service] | Spec[Any] | Command,
        *,
        name: str | None = None,
        min_idle: int = 1,
        max_size: int = 0,
        shards: int | None = None,
    ) -> None:
        """Have the server keep a service warm that requests acquire by `ctx.acquire`.

        Args:
            what: a service class, a spec of one, or a Command.
            name: by which `specs` finds it; default: that of its class or program.
            min_idle: idle ones that are kept ready.
            max_size: services of this kind at once; 0: as many as the server's pool has room for.
            shards: the number of services to keep, each made with its own `shard` and with `shards`
                as keyword arguments, as `forebay.TensorServer` has them; `min_idle` is ignored.

        Raises:
            ConfigError: this is no service, the name is taken, the numbers do not fit, or it is a
                program whose client speaks on its stdin and stdout: only the worker that started
                it can use it, so that none can be kept ready for others.
        """
        if min_idle < 0 or max_size < 0 or (max_size and min_idle > max_size):
            raise ConfigError(
                f"app {self.name!r}: min_idle={min_idle} does not fit max_size={max_size}"
            )
        alias = "" if name is None else _checked_name("service", name)
        if alias and any(service.alias == alias for service in self._services):
            raise ConfigError(f"app {self.name!r} has a service {alias!r} already")
        self._services += services_of(self.name, what, alias, min_idle, max_size, shards)

    def specs(self, name: str) -> tuple[type[Service] | Spec[Any] | Command, ...]:
        """What to acquire for a service: one, or one for each shard, the first shard's first.

        Args:
            name: the one given to `service`, or that of its class or program.

        Raises:
            ConfigError: no service has that name.
        """
        found = [it.what for it in self._services if name == (it.alias or it.name)]
        if not found:
            known = ", ".join(dict.fromkeys(it.alias or it.name for it in self._services))
            raise ConfigError(
                f"app {self.name!r} has no service {name!r}; it has {known or 'none'}"
            )
        return tuple(found)

    def __getstate__(self) -> dict[str, Any]:
        """What travels with a request's function by value: neither the module nor other requests.

        The module may be a notebook, with everything that it has.
        """
        return self.__dict__ | {"_module": {}, "_requests": {}, "_services": []}

    def __repr__(self) -> str:
        return f"<App {self.name!r} with {len(self._requests)} requests>"

    def _add(self, function: Any, name: str | None, given: dict[str, Any]) -> Any:
        name = _checked_name("request", getattr(function, "__name__", "") if name is None else name)
        if not inspect.isfunction(function):
            raise ConfigError(f"request {name!r}: {function!r} is no function")
        self._refuse_taken(name, function)
        is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        options = RequestOptions.checked(f"request {name!r}", is_async=is_async, **given)
        definition = Definition(self, function, name, options, is_async=is_async)
        decorated: Any = callable_without_context(definition)
        decorated.definition = definition
        decorated.app = self
        self._requests[name] = definition
        return decorated

    def _refuse_taken(self, name: str, function: Any) -> None:
        known = self._requests.get(name)
        if known is None:
            return
        other = known.function
        if not _is_redefined(other.__code__, function.__code__):
            raise ConfigError(
                f"request {name!r} of app {self.name!r} is defined already, by "
                f"{other.__module__}.{other.__qualname__}; give one of them another name"
            )


def _is_redefined(old: CodeType, new: CodeType) -> bool:
    """Whether it is the same function, defined again: by a reload, or in a cell that ran again."""
    if old.co_qualname != new.co_qualname:
        return False
    same_file = old.co_filename == new.co_filename
    return not same_file or old.co_firstlineno == new.co_firstlineno


def _checked_name(what: str, name: Any) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > NAME_CHARS_MAX:
        raise ConfigError(
            f"{what} name {name!r}: it begins with a letter and has at most {NAME_CHARS_MAX} "
            "letters, digits, and the characters _ . -"
        )
    return name
