"""One request of an application: its function, its parameters and its options."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from forebay.errors import ConfigError
from forebay.executor.app.context import Context, outside
from forebay.executor.app.secret import is_secret
from forebay.executor.app.types import check_type
from forebay.executor.app.yielded import yielded

if TYPE_CHECKING:
    from forebay.executor.app.application import App
    from forebay.executor.app.options import RequestOptions

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)

_POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD
_NAMED = (_POSITIONAL, inspect.Parameter.KEYWORD_ONLY)


class Decorated(Protocol[P, R_co]):
    """A function that `App.request` has decorated; it can still be called, and its App knows it."""

    definition: Definition
    app: App

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run it here and now, in this process; nothing is submitted."""
        ...


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a request, as its function declares it.

    Attributes:
        name: its name.
        annotation: its type; `Any` without an annotation.
        required: whether it has no default.
        default: its default, if it has one.
        positional: whether it may be given by position.
    """

    name: str
    annotation: Any
    required: bool
    default: Any
    positional: bool


class Definition:
    """A request with its function, in a client or in a worker.

    Attributes:
        app: the application.
        name: under which it is submitted.
        function: the undecorated function.
        options: how it is run.
        parameters: names of its parameters, without that of the context, in order.
        context: name of the parameter that gets the `Context`; None: it has none.
        is_async: whether it is an `async def`.
        gives_items: whether it is a generator, of either kind.
    """

    __slots__ = (
        "_fields",
        "_item",
        "_result",
        "_signature",
        "app",
        "context",
        "function",
        "gives_items",
        "is_async",
        "name",
        "options",
        "parameters",
    )

    def __init__(
        self, app: App, function: Any, name: str, options: RequestOptions, *, is_async: bool
    ) -> None:
        self.app = app
        self.function = function
        self.name = name
        self.options = options
        self.is_async = is_async
        is_asyncgen = inspect.isasyncgenfunction(function)
        self.gives_items = is_asyncgen or inspect.isgeneratorfunction(function)
        self._signature = inspect.signature(function)
        self._fields: tuple[Parameter, ...] | None = None
        self._result: Any = Any
        self._item: Any = None
        hints, unknown = _hints(function)
        self._refuse_kinds()
        self.context = self._find_context(hints)
        self.parameters = tuple(name for name in self._signature.parameters if name != self.context)
        self._check_options()
        if unknown is None:
            self._settle(hints)

    @property
    def what(self) -> str:
        """Its name for messages."""
        return f"request {self.name!r}"

    @property
    def fields(self) -> tuple[Parameter, ...]:
        """Its parameters with their types.

        Raises:
            ConfigError: an annotation that could not be read at decoration cannot be read now.
        """
        if self._fields is None:
            hints, unknown = _hints(self.function)
            if unknown is not None:
                parameter, error = unknown
                raise ConfigError(
                    f"{self._what(parameter)}: its annotation cannot be read: {error}; import what "
                    "it names at the top level of the module, outside of `if TYPE_CHECKING`"
                )
            self._settle(hints)
        assert self._fields is not None
        return self._fields

    @property
    def result(self) -> Any:
        """The annotation of its result; `Any` without an annotation. Raises as `fields`."""
        return self._result if self.fields is not None else None

    @property
    def item(self) -> Any:
        """The annotation of its items; None if it gives none. Raises as `fields`."""
        return self._item if self.fields is not None else None

    def __repr__(self) -> str:
        return f"<{self.what} of app {self.app.name!r}>"

    def _settle(self, hints: dict[str, Any]) -> None:
        """Check the types, and keep them."""
        fields = []
        for parameter in self._signature.parameters.values():
            name = parameter.name
            if name == self.context:
                continue
            annotation = hints.get(name, Any)
            check_type(annotation, self._what(name))
            if name == self.options.concurrency_key and is_secret(annotation):
                raise ConfigError(
                    f"{self._what(name)} is secret, and concurrency_key would keep its values in "
                    "clear; count by another parameter"
                )
            required = parameter.default is parameter.empty
            fields.append(
                Parameter(
                    name=name,
                    annotation=annotation,
                    required=required,
                    default=None if required else parameter.default,
                    positional=parameter.kind is _POSITIONAL,
                )
            )
        self._result = hints.get("return", Any)
        if self.gives_items:
            self._item, self._result = yielded(self._result, self.what)
            check_type(self._item, f"an item of {self.what}")
        check_type(self._result, self._what("return"))
        self._fields = tuple(fields)

    def _what(self, parameter: str) -> str:
        if parameter == "return":
            return f"the result of {self.what}"
        return f"parameter {parameter!r} of {self.what}"

    def _refuse_kinds(self) -> None:
        for parameter in self._signature.parameters.values():
            if parameter.kind not in _NAMED:
                raise ConfigError(
                    f"{self._what(parameter.name)} is {parameter.kind.description}; arguments of a "
                    "request travel by their names, so give each a name, or use a list or a dict"
                )

    def _find_context(self, hints: dict[str, Any]) -> str | None:
        found = [name for name, hint in hints.items() if hint is Context and name != "return"]
        if len(found) > 1:
            raise ConfigError(f"{self.what} has {len(found)} contexts ({', '.join(found)}); one do")
        return found[0] if found else None

    def _check_options(self) -> None:
        key = self.options.concurrency_key
        if key is not None and key not in self.parameters:
            raise ConfigError(
                f"{self.what}: concurrency_key={key!r} is not one of its parameters "
                f"({', '.join(self.parameters) or 'it has none'})"
            )
        if self.options.cron is None:
            return
        signature = self._signature.parameters
        required = [name for name in self.parameters if signature[name].default is inspect._empty]
        if required:
            raise ConfigError(
                f"{self.what} is submitted by its schedule without arguments, but parameter "
                f"{required[0]!r} has no default; give it one, or leave cron out"
            )


def callable_without_context(definition: Definition) -> Any:
    """The function for direct calls, which pass a substitute if the context is not given."""
    function, name = definition.function, definition.context
    if name is None:
        return function
    parameters = list(definition._signature.parameters.values())
    at = [parameter.name for parameter in parameters].index(name)
    positional = parameters[at].kind is _POSITIONAL

    def made() -> Context:
        return outside(definition.name, is_async=definition.is_async)

    def completed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        if name in kwargs or (positional and len(args) > at and isinstance(args[at], Context)):
            return args
        if positional and len(args) >= at:
            return (*args[:at], made(), *args[at:])
        kwargs[name] = made()
        return args

    if definition.is_async and not definition.gives_items:

        @functools.wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            return await function(*completed(args, kwargs), **kwargs)

        return call_async

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*completed(args, kwargs), **kwargs)

    return call


def _hints(function: Any) -> tuple[dict[str, Any], tuple[str, NameError] | None]:
    """Evaluated annotations, and the first that names what is not defined (yet)."""
    found: dict[str, Any] = {}
    unknown: tuple[str, NameError] | None = None
    for name, raw in function.__annotations__.items():
        one: Any = types.SimpleNamespace(__annotations__={name: raw})
        try:
            hints = typing.get_type_hints(one, function.__globals__, include_extras=True)
        except NameError as error:
            unknown = unknown or (name, error)
        else:
            found.update(hints)
    return found, unknown
