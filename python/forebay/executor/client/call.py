"""What a program submits: the name of a request and its arguments as bytes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from forebay import _trace
from forebay.errors import ConfigError
from forebay.executor.app.running import running_request
from forebay.executor.wire.codec import encode

if TYPE_CHECKING:
    from forebay.executor.client.options import Submit

__all__ = [
    "Target",
    "application_of",
    "bind",
    "item_type",
    "name_of",
    "options_of",
    "result_type",
]

Target = str | Callable[..., Any]
"""A function of an application, or the name of a request."""

Names = Callable[[str], Sequence[str]]
"""The parameters of a request, by its name."""


def name_of(target: Target) -> str:
    """The name of the request.

    Raises:
        ConfigError: a function that is not a request.
    """
    if type(target) is str:
        return target
    try:
        name: str = target.definition.name  # type: ignore[union-attr]
    except AttributeError:
        raise ConfigError(
            f"{getattr(target, '__qualname__', target)!r} is no request; put @app.request() above"
            " it, or give the name of one"
        ) from None
    return name


def bind(
    target: Target, args: tuple[Any, ...], kwargs: dict[str, Any], names: Names | None = None
) -> bytes:
    """The arguments as they travel: by name.

    Args:
        target: what is submitted.
        args: positional arguments.
        kwargs: the others.
        names: asked for the parameters of a request that is given by its name.

    Raises:
        ConfigError: more positional arguments than parameters, one given twice, or a value that
            does not travel.
    """
    if args:
        kwargs = {**_positional(target, args, kwargs, names), **kwargs}
    try:
        return encode(kwargs)
    except (TypeError, OverflowError, UnicodeEncodeError) as error:
        raise ConfigError(f"request {name_of(target)!r}: {error}") from error


def application_of(target: Target, *, named: bool) -> str | None:
    """The source file of a function's application, for a client that knows of no server yet.

    Args:
        target: what is submitted.
        named: whether something else says which server is meant.

    Raises:
        ConfigError: it has no source file, and no setting names a server.
    """
    module = getattr(target, "__module__", None)
    if named or isinstance(target, str) or module is None:
        return None
    file: str | None = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        _expect_server(target)
    return file


def _expect_server(target: Target) -> None:
    from forebay.configuration import find_configuration

    configuration = find_configuration()
    if configuration.value("url") is None and configuration.value("app") is None:
        name = getattr(target, "__name__", name_of(target))
        raise ConfigError(
            f"request {name_of(target)!r} was typed into an interactive session, and a server "
            "imports its application from a file; in a notebook begin the cell that defines it "
            f"with  %%writefile app.py  and submit it after  from app import {name}"
        )


def options_of(target: Target, options: Submit | None) -> dict[str, Any] | None:
    """The options of a submission on the wire.

    An application says for whom it submits, and a request that runs here that it is the parent.
    """
    wire = None if options is None else options.to_wire()
    if _trace.spans is not None:
        wire = wire or {}
        traceparent = _trace.spans.send(name_of(target), wire.get("traceparent"))
        if traceparent is not None:
            wire["traceparent"] = traceparent
    submitter = None if isinstance(target, str) else target.app.submitter  # type: ignore[attr-defined]
    parent = running_request()
    if submitter is None and parent is None:
        return wire
    given = {"submitter": submitter, "parent": parent}
    return {name: one for name, one in given.items() if one is not None} | (wire or {})


def result_type(target: Target) -> Any:
    """What a function is annotated to return, as which its result is decoded."""
    return Any if isinstance(target, str) else target.definition.result  # type: ignore[attr-defined]


def item_type(target: Target) -> Any:
    """What an item of a generator is annotated with; None if the function is none."""
    return Any if isinstance(target, str) else target.definition.item  # type: ignore[attr-defined]


def _positional(
    target: Target, args: tuple[Any, ...], kwargs: dict[str, Any], names: Names | None
) -> dict[str, Any]:
    name = name_of(target)
    if not isinstance(target, str):
        parameters = target.definition.parameters  # type: ignore[attr-defined]
    elif names is not None:
        parameters = names(name)
    else:
        parameters = ()
    if len(args) > len(parameters):
        raise ConfigError(
            f"request {name!r} takes {len(parameters)} positional arguments and was given"
            f" {len(args)}; its parameters are: {', '.join(parameters) or 'none'}"
        )
    bound = dict(zip(parameters, args, strict=False))
    twice = bound.keys() & kwargs.keys()
    if twice:
        raise ConfigError(
            f"request {name!r} was given {min(twice)!r} by position and by name; give it once"
        )
    return bound
