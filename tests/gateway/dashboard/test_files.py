"""The files of the page: what is in the table, and how browsers are answered."""

from __future__ import annotations

import asyncio
import re
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from forebay.gateway.asgi.application import Application
from forebay.gateway.dashboard.files import FOLDER, INDEX, files_below, page_files
from forebay.gateway.metrics.answered import HttpMetrics
from forebay.gateway.routes.every import TABLE
from forebay.gateway.routes.pages import POLICY

GZIP = 31
REFERENCE = re.compile(
    r"""(?:src|href)="(?!https?:|data:|#)([^"]+)"|(?:from|import)\s*["'](\.[^"']+)"""
)


def get(path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """The answer of the application to a request without a token."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("a GET has no body")

    context: Any = SimpleNamespace(
        access=SimpleNamespace(check=lambda *_: None), metrics=HttpMetrics()
    )
    named = [(name.replace("_", "-").encode(), it.encode()) for name, it in headers.items()]
    scope = {"method": method, "path": path, "raw_path": path.encode(), "headers": named}
    asyncio.run(Application(context, TABLE)(scope, receive, send))
    told = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], told, b"".join(bytes(one.get("body", b"")) for one in sent[1:])


def test_the_page_may_use_this_server_alone() -> None:
    """What somebody writes into a name or a log, and a browser would run, is not run."""
    status, headers, body = get("/ui/")
    assert status == 200
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert headers["content-security-policy"] == POLICY.decode()
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cache-control"] == "no-cache"
    assert body == page_files()[INDEX].content


@pytest.mark.parametrize("path", ["/", "/ui"])
def test_the_address_alone_leads_to_the_page(path: str) -> None:
    """It is what people type."""
    status, headers, body = get(path)
    assert (status, headers["location"], body) == (303, "ui/", b"")


def test_a_file_that_the_browser_has_is_not_sent_again() -> None:
    """A page that is opened again costs some hundred bytes."""
    _, headers, _ = get("/ui/")
    tag = headers["etag"]
    for sent in (tag, f'"x", {tag}', tag.removeprefix("W/"), "*"):
        status, told, body = get("/ui/", if_none_match=sent)
        assert (status, body, told["etag"]) == (304, b"", tag), sent
        assert "content-length" not in told
        assert told["content-security-policy"] == POLICY.decode()
    for sent in ('"x"', "", 'W/"x"', tag[:-2] + '"'):
        assert get("/ui/", if_none_match=sent)[0] == 200, sent


@pytest.mark.parametrize(
    ("codings", "packed"),
    [
        ("gzip, deflate, br", True),
        ("br;q=1.0, GZIP;q=0.8", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("x-gzip, br", False),
        ("", False),
    ],
)
def test_a_file_is_packed_for_who_unpacks_it(codings: str, packed: bool, tmp_path: Path) -> None:
    """Two thirds of the bytes of the page are not sent."""
    name = max(page_files(), key=lambda one: len(page_files()[one].content))
    found = page_files()[name]
    status, headers, body = get(f"/ui/{name}", accept_encoding=codings)
    assert status == 200
    assert headers["vary"] == "accept-encoding"
    assert headers.get("content-encoding") == ("gzip" if packed and found.packed else None)
    if "content-encoding" in headers:
        body = zlib.decompress(body, wbits=GZIP)
    assert body == found.content


def test_a_file_that_gzip_does_not_shorten_is_sent_as_it_is(tmp_path: Path) -> None:
    """Pictures are packed already."""
    (tmp_path / "few.txt").write_bytes(b"ab")
    (tmp_path / "many.txt").write_bytes(b"ab" * 1000)
    found = files_below(tmp_path)
    assert found["few.txt"].packed is None
    packed = found["many.txt"].packed
    assert packed is not None
    assert zlib.decompress(packed, wbits=GZIP) == b"ab" * 1000


@pytest.mark.parametrize(
    "name",
    [
        "../files.py",
        "%2e%2e/files.py",
        "..%2ffiles.py",
        "assets/index.html",
        "/etc/passwd",
        "index.html/",
        "",
        "index.html\0",
        "./index.html",
    ],
)
def test_no_name_leads_out_of_the_table(name: str) -> None:
    """What is not in it is not looked for on the disk."""
    status, _, _ = get(f"/ui/x/{name}" if not name else f"/ui/{name}")
    assert status == 404


def test_other_methods_are_refused_and_head_has_no_body() -> None:
    """As of every route."""
    assert get("/ui/", "POST")[:2][0] == 405
    assert get("/ui/", "HEAD")[0] == 200


def test_a_file_in_a_folder_is_named_by_its_path(tmp_path: Path) -> None:
    """Libraries of others lie in a folder of their own; what has no known type is not served."""
    (tmp_path / "vendored").mkdir()
    (tmp_path / "vendored" / "chart.js").write_text("x")
    (tmp_path / "vendored" / "LICENSE").write_text("x")
    (tmp_path / "notes.md").write_text("x")
    assert list(files_below(tmp_path)) == ["vendored/chart.js"]


def test_all_that_the_files_name_is_there() -> None:
    """A module that is missing leaves an empty page, and only a browser sees it."""
    files = page_files()
    assert INDEX in files
    for name, file in files.items():
        if not name.endswith((".html", ".js", ".mjs")):
            continue
        for groups in REFERENCE.findall(file.content.decode()):
            target = next(filter(None, groups)).partition("?")[0]
            path = (FOLDER / name).parent / target.removeprefix("/ui/")
            at = FOLDER / target.removeprefix("/ui/") if target.startswith("/") else path
            assert at.resolve().relative_to(FOLDER.resolve()).as_posix() in files, (name, target)
