"""Which route a path is: parameters of one piece, and of all that follows."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.gateway.asgi.table import Route, Table
from forebay.gateway.problems import Problem


async def handler(*_: Any) -> None:
    raise AssertionError("a table calls nobody")


PATHS = ("/", "/ui", "/ui/", "/ui/{}", "/v1/requests", "/v1/requests/{}", "/v1/requests/{}/show")
TABLE = Table(Route("GET", path, None, handler) for path in PATHS)

FOUND = {
    "/": ("/", ""),
    "/ui": ("/ui", ""),
    "/ui/": ("/ui/", ""),
    "/ui/a.js": ("/ui/{}", "a.js"),
    "/ui/a/b.js": ("/ui/{}", "a/b.js"),
    "/ui/a/b/c/d/e.js": ("/ui/{}", "a/b/c/d/e.js"),
    "/ui//a": ("/ui/{}", "/a"),
    "/ui/a/": ("/ui/{}", "a/"),
    "/ui/%2e%2e/a": ("/ui/{}", "../a"),
    "/ui/a%2Fb": ("/ui/{}", "a/b"),
    "/v1/requests": ("/v1/requests", ""),
    "/v1/requests/x": ("/v1/requests/{}", "x"),
    "/v1/requests/x%2Fshow": ("/v1/requests/{}", "x/show"),
    "/v1/requests/x/show": ("/v1/requests/{}/show", "x"),
    "/v1/requests/%7B%7D": ("/v1/requests/{}", "{}"),
}


@pytest.mark.parametrize("path", FOUND)
def test_a_path_has_its_route(path: str) -> None:
    """A slash that is escaped splits none but that of files, whose names are looked up whole."""
    from urllib.parse import unquote

    route, part = TABLE.find("GET", unquote(path), path.encode())
    assert (route.path, part) == FOUND[path]
    assert TABLE.find("HEAD", unquote(path), path.encode())[0] is route


@pytest.mark.parametrize(
    "path",
    ["", "//", "/u", "/uix", "/ui2/a", "/v1", "/v1/", "/v1/requests/", "/v1/requests/x/", "/x/a",
     "/v1/requests/x/show/y", "//ui/a", "/v1/ui/a"],
)  # fmt: skip
def test_another_path_has_none(path: str) -> None:
    """It is 404, whatever it resembles."""
    with pytest.raises(Problem) as caught:
        TABLE.find("GET", path, path.encode())
    assert caught.value.status == 404


def test_another_method_is_told_which_there_are() -> None:
    """Of files too."""
    with pytest.raises(Problem) as caught:
        TABLE.find("POST", "/ui/a/b", b"/ui/a/b")
    assert caught.value.status == 405
    assert caught.value.headers == [(b"allow", b"GET, HEAD")]
