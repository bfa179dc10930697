"""A request as its worker runs it: typed arguments in, one call, its result out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from forebay.errors import ConfigError
from forebay.executor.wire.codec import _from_data, _from_extension

if TYPE_CHECKING:
    from forebay import _trace
    from forebay.executor.app.context import Context
    from forebay.executor.app.definition import Definition

T = TypeVar("T")

Call = Callable[[Any, "Context | None"], Any]
"""Runs a function, given its arguments as they travel."""

NO_ARGUMENTS = b"\x80"
"""The empty map."""


class Entry:
    """What a worker knows of one request of the application, made in the template.

    Attributes:
        name: the request's.
        takes_context: whether the function wants one.
        is_async: whether a call gives a coroutine, or an asynchronous generator.
        gives_items: whether it gives a generator.
        is_handed: whether further calls may wait in the worker behind one that runs.
    """

    __slots__ = (
        "_call",
        "_decode",
        "_plain",
        "definition",
        "gives_items",
        "is_async",
        "is_handed",
        "name",
        "takes_context",
    )

    def __init__(self, definition: Definition) -> None:
        from msgspec import msgpack

        self.definition = definition
        self.name = definition.name
        self.is_async = definition.is_async
        self.gives_items = definition.gives_items
        self.is_handed = definition.options.ahead > 0
        self.takes_context = definition.context is not None
        fields = definition.fields
        required = any(field.required for field in fields)
        self._plain = definition.function if not required and not self.takes_context else None
        self._decode = msgpack.Decoder(
            _arguments_type(definition), ext_hook=_from_extension, dec_hook=_from_data
        ).decode
        self._call = _binder(definition)

    def call(self, blob: Any, context: Context | None) -> Any:
        """Run the function, or make its coroutine or its generator.

        Args:
            blob: the arguments, a map of names to values.
            context: passed to a function that takes one.

        Raises:
            TypeError: an argument does not fit the function; the message names it.
            Whatever the function raises.
        """
        if blob == NO_ARGUMENTS and self._plain is not None:
            return self._plain()
        try:
            arguments = self._decode(blob)
        except MemoryError:
            raise
        except Exception as error:
            raise Unfit(self, error) from None
        return self._call(arguments, context)

    def encode(self, result: Any, how: Callable[[Any], T], *, verb: str = "returned") -> T:
        """The bytes of a result.

        Args:
            result: what the function returned, or yielded.
            how: what encodes it.
            verb: what it did with it, for messages.

        Raises:
            TypeError: it is no data; the message names the request, the type and the next step.
            MemoryError: there is no memory for them.
        """
        try:
            return how(result)
        except MemoryError:
            raise
        except Exception as error:
            raise Unfit(self, error, result, verb=verb) from None


def traced(
    spans: _trace.Spans, name: str, call: Call, id: str, attempt: int, traceparent: str | None
) -> Call:
    """What runs a request of that name within the span of its run."""

    def within(blob: Any, context: Context | None) -> Any:
        with spans.process(name, id, attempt, traceparent):
            return call(blob, context)

    return within


class Unfit(TypeError):
    """Arguments or a result that are not of the declared types, so no traceback is shown."""

    def __init__(
        self, entry: Entry, error: Exception, *result: Any, verb: str = "returned"
    ) -> None:
        told = str(error).replace("`$.", "`")
        if result:
            kind = type(result[0])
            message = (
                f"request {entry.name!r} {verb} a {kind.__module__}.{kind.__qualname__} that "
                f"cannot be sent: {told}; return JSON types, bytes, datetimes, dataclasses, "
                "msgspec structs or numpy arrays, or the path of a file"
            )
        else:
            message = f"arguments of request {entry.name!r}: {told}"
        super().__init__(message)


class Unkept(OSError):
    """A result or an item that cannot be written to the disk; no traceback is shown either."""


def entries_of(definitions: Any) -> dict[str, Entry]:
    """The entries of an application's requests by name."""
    return {definition.name: Entry(definition) for definition in definitions}


def unknown(name: str, entries: dict[str, Entry]) -> ConfigError:
    """The error for a request that this application does not have (any more)."""
    known = ", ".join(entries) or "none"
    return ConfigError(
        f"this application has no request {name!r} (it has: {known}); it may have been submitted "
        "to an earlier version of the code"
    )


def _arguments_type(definition: Definition) -> Any:
    """A struct with a field for each parameter, which refuses other fields."""
    import msgspec

    fields: list[Any] = []
    for field in definition.fields:
        if field.required:
            fields.append((field.name, field.annotation))
        else:  # the function's own object, as in a direct call
            default = msgspec.field(default_factory=functools.partial(_given, field.default))
            fields.append((field.name, field.annotation, default))
    return msgspec.defstruct("Arguments", fields, forbid_unknown_fields=True, kw_only=True)


def _given(value: Any) -> Any:
    return value


def _binder(definition: Definition) -> Callable[[Any, Context | None], Any]:
    """Call the function with the values of the struct, by position as far as that is possible."""
    from msgspec.structs import astuple

    function, context = definition.function, definition.context
    fields = definition.fields
    positional = all(field.positional for field in fields)
    if positional and context is None:
        return lambda arguments, _: function(*astuple(arguments))
    order = list(definition._signature.parameters)
    if positional and order[:1] == [context]:
        return lambda arguments, made: function(made, *astuple(arguments))
    names = definition.parameters

    def call(arguments: Any, made: Context | None) -> Any:
        given = {name: getattr(arguments, name) for name in names}
        if context is not None:
            given[context] = made
        return function(**given)

    return call
