"""Which handler answers which method and path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

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
        self._paths: dict[str, dict[str, Route]] = {}
        for route in routes:
            methods = self._paths.setdefault(route.path, {})
            methods[route.method] = route
            if route.method == "GET":
                methods["HEAD"] = route

    def find(self, method: str, path: str) -> tuple[Route, str]:
        """The route, and what the path has in the place of its parameter.

        Raises:
            Problem: there is no such path, or not with this method.
        """
        part = ""
        methods = self._paths.get(path)
        if methods is None:
            pieces = path.split("/", PART + 1)
            if len(pieces) > PART:
                part, pieces[PART] = pieces[PART], "{}"
                methods = self._paths.get("/".join(pieces))
            if methods is None or not part:
                raise Problem(
                    404,
                    "unknown",
                    f"there is no path {path!r:.100}",
                    object="path",
                    value=path[:100],
                    next="see /openapi.json",
                )
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
