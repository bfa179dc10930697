"""Which handler answers which method and path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

from forebay.gateway.problems import Problem

if TYPE_CHECKING:
    from forebay.gateway.asgi.context import Context
    from forebay.gateway.http.exchange import Exchange
    from forebay.gateway.tokens import Role

__all__ = ["Handler", "Route", "Table"]

Handler = Callable[["Context", "Exchange"], Awaitable[None]]

PART: Final = 3
"""Where a path may have its parameter: "", "v1", "requests", and then the parameter."""

BELOW: Final = 2
"""Where the parameter of a path may begin that takes all which follows: "", "ui", and then that."""


class Route(NamedTuple):
    """One method of one path.

    Attributes:
        method: GET answers HEAD too.
        path: with `{}` where its parameter is. Behind one other piece, as in `/ui/{}`, the
            parameter is all that follows, with its slashes.
        role: what a token must have; None: no token is needed.
        handler: it answers.
    """

    method: str
    path: str
    role: Role | None
    handler: Handler


class Table:
    """All routes."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._plain: dict[tuple[str, ...], dict[str, Route]] = {}
        self._with_part: dict[tuple[str, ...], dict[str, Route]] = {}
        self._below: dict[tuple[str, ...], dict[str, Route]] = {}
        for route in routes:
            pieces = tuple(route.path.split("/", PART + 1))
            paths = self._plain
            if "{}" in pieces:
                paths = self._with_part if pieces.index("{}") == PART else self._below
            methods = paths.setdefault(pieces, {})
            methods[route.method] = route
            if route.method == "GET":
                methods["HEAD"] = route

    def find(self, method: str, path: str, raw_path: bytes) -> tuple[Route, str]:
        """The route, and what the path has in the place of its parameter.

        Args:
            method: in capitals.
            path: without escapes.
            raw_path: as it came. Where it has an escaped slash, the slash is a part of what stands
                between two others (RFC 3986, section 2.4).

        Raises:
            Problem: there is no such path, or not with this method.
        """
        if b"%" in raw_path:
            pieces = [unquote(piece) for piece in raw_path.decode("ascii").split("/", PART + 1)]
        else:
            pieces = path.split("/", PART + 1)
        part, methods = self._found(pieces)
        if methods is None:
            raise _unknown(path)
        route = methods.get(method)
        if route is None:
            allowed = ", ".join(methods)
            raise Problem(
                405,
                "method",
                f"{path!r:.100} has no method {method}",
                object="method",
                limit=allowed,
                value=method,
                next=f"use {allowed}",
                headers=[(b"allow", allowed.encode())],
            )
        return route, part

    def _found(self, pieces: list[str]) -> tuple[str, dict[str, Route] | None]:
        """The parameter of a path, and the methods that it has."""
        plain = self._plain.get(tuple(pieces))
        if plain is not None:
            return "", plain
        if len(pieces) > PART and pieces[PART]:
            methods = self._with_part.get((*pieces[:PART], "{}", *pieces[PART + 1 :]))
            if methods is not None:
                return pieces[PART], methods
        if len(pieces) > BELOW:
            return "/".join(pieces[BELOW:]), self._below.get((*pieces[:BELOW], "{}"))
        return "", None


def _unknown(path: str) -> Problem:
    return Problem(
        404,
        "unknown",
        f"there is no path {path!r:.100}",
        object="path",
        value=path[:100],
        next="see /openapi.json",
    )
