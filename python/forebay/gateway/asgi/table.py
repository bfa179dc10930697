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


class Route(NamedTuple):
    """One method of one path.

    Attributes:
        method: GET answers HEAD too.
        path: with `{}` where its parameter is.
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
        for route in routes:
            paths = self._with_part if "{}" in route.path else self._plain
            methods = paths.setdefault(tuple(route.path.split("/", PART + 1)), {})
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
        part, methods = "", self._plain.get(tuple(pieces))
        if methods is None and len(pieces) > PART and pieces[PART]:
            part, pieces[PART] = pieces[PART], "{}"
            methods = self._with_part.get(tuple(pieces))
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


def _unknown(path: str) -> Problem:
    return Problem(
        404,
        "unknown",
        f"there is no path {path!r:.100}",
        object="path",
        value=path[:100],
        next="see /openapi.json",
    )
