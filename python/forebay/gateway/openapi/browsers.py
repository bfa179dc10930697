"""The routes for browsers: the page of the dashboard, and sessions."""

from __future__ import annotations

from typing import Final

from forebay.gateway.dashboard.files import TYPES
from forebay.gateway.openapi.operation import (
    Map,
    Operation,
    described_header,
    get,
    json_body,
    query,
    text_answer,
)

__all__ = ["BROWSERS"]

_COOKIE: Final = {"Set-Cookie": described_header("the session", {"type": "string"})}
_LOCATION: Final = {"Location": described_header("where to", {"type": "string"})}

_FILE: Final[Map] = {
    **text_answer("the file", *sorted({it.decode().partition(";")[0] for it in TYPES.values()})),
    "headers": {"ETag": described_header("of this content", {"type": "string"})},
}
_KEPT: Final[Map] = {"description": "what If-None-Match names is the newest"}

_NAME: Final = {
    "name": "file",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "minLength": 1},
    "description": "of a file that the page names",
}


BROWSERS: Final = (
    get(
        "/login",
        "login",
        "Use the link of a browser, which sets a cookie",
        {303: {"description": "go on there", "headers": {**_LOCATION, **_COOKIE}}},
        role=None,
        problems=(401, 422),
        parameters=(query("key", {"type": "string"}, "of the link"),),
    ),
    Operation(
        method="POST",
        path="/login",
        name="login_by_token",
        summary="Begin a session with the rights of a token, from the page of this server",
        answers={204: {"description": "the session has begun", "headers": _COOKIE}},
        problems=(401, 403, 413, 415, 422),
        body=json_body("ForebayLogin"),
        role=None,
    ),
    Operation(
        method="POST",
        path="/logout",
        name="logout",
        summary="End the session of the cookie",
        answers={204: {"description": "it has ended", "headers": _COOKIE}},
    ),
    *(
        get(
            path,
            name,
            "The dashboard is at /ui/",
            {303: {"description": "go on there", "headers": _LOCATION}},
            role=None,
        )
        for path, name in (("/", "get_home"), ("/ui", "get_dashboard"))
    ),
    get("/ui/", "get_page", "The page of the dashboard", {200: _FILE, 304: _KEPT}, role=None),
    get(
        "/ui/{file}",
        "get_page_file",
        "A file of the page",
        {200: _FILE, 304: _KEPT},
        role=None,
        problems=(404,),
        parameters=(_NAME,),
    ),
)
"""All of them."""
