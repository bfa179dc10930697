"""What a program submits: the name of a request, its arguments as bytes, its options, its key."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from forebay_client.errors import ConfigError
from forebay_client.options import key_of, options_of, trace_of
from forebay_client.values.codec import encode

__all__ = ["Submission", "Target", "by_name", "name_of", "parameters_of", "submission"]

Target = str | Callable[..., Any]
"""The name of a request, or where forebay is installed a function of an application."""


@dataclass(frozen=True, slots=True)
class Submission:
    """One request on its way to the gateway.

    Attributes:
        key: by which the gateway knows it again; each has one.
        trace: the span that it belongs to.
        type: as which its result is decoded.
        item_type: as which its items are; None: it is no generator.
    """

    name: str
    arguments: bytes
    options: dict[str, Any]
    key: str
    trace: str | None
    type: Any
    item_type: Any = Any


def submission(
    target: Target, arguments: dict[str, Any], options: Any, *, many: bool = False
) -> Submission:
    """A submission of a target.

    Args:
        target: what is submitted.
        arguments: by name.
        options: a `Submit`, or None.
        many: it is one of several with the same options.

    Raises:
        ConfigError: the arguments or the options do not travel.
    """
    name = name_of(target)
    key = key_of(options)
    if many and key is not None:
        raise ConfigError(
            "submit_many was given an idempotency key, which would make all of them one request;"
            " leave it out"
        )
    blob = encode(arguments, f"request {name!r}")
    made = key or secrets.token_urlsafe(18)
    trace = trace_of(options)
    types = result_type(target), item_type(target)
    return Submission(name, blob, options_of(options), made, trace, *types)


def name_of(target: Target) -> str:
    """The name of the request.

    Raises:
        ConfigError: a function that is not a request.
    """
    if isinstance(target, str):
        return target
    try:
        name: str = target.definition.name  # type: ignore[attr-defined]
    except AttributeError:
        raise ConfigError(
            f"{getattr(target, '__qualname__', target)!r} is no request; put @app.request() above"
            " it, or give the name of one"
        ) from None
    return name


def result_type(target: Target) -> Any:
    """What a function is annotated to return, as which its result is decoded."""
    return Any if isinstance(target, str) else target.definition.result  # type: ignore[attr-defined]


def item_type(target: Target) -> Any:
    """What an item of a generator is annotated with; None if the function is none."""
    return Any if isinstance(target, str) else target.definition.item  # type: ignore[attr-defined]


def parameters_of(target: Target, manifest: dict[str, Any] | None) -> Sequence[str]:
    """The names of the parameters of a request, in their order."""
    if not isinstance(target, str):
        names: Sequence[str] = target.definition.parameters  # type: ignore[attr-defined]
        return names
    for request in (manifest or {}).get("requests", ()):
        if request["name"] == target:
            return [one["name"] for one in request["parameters"]]
    return ()


def by_name(
    target: Target, args: tuple[Any, ...], kwargs: dict[str, Any], parameters: Sequence[str]
) -> dict[str, Any]:
    """The arguments by name.

    Raises:
        ConfigError: more positional ones than parameters, or one given twice.
    """
    name = name_of(target)
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
    return {**bound, **kwargs}
