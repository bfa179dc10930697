"""Sessions of browsers on a real gateway: begun by a link and by a token, and ended."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest

from forebay.gateway.login import new_link
from forebay.gateway.token_file import add_token, remove_token
from forebay.gateway.tokens import Role
from tests.executor.serving import until
from tests.gateway.http.http_serving import Answer, HttpServing, received

pytestmark = pytest.mark.leaks(reason="the server of the module is there until its last test")


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServing]:
    with HttpServing(tmp_path_factory.mktemp("sessions")) as running:
        yield running


def log_in(serving: HttpServing, token: str, **headers: str) -> Answer:
    """What the page does with a token that was typed into it."""
    headers = {"Origin": serving.url} | headers
    return serving.call("POST", "/login", {"token": token}, token=None, **headers)


def cookie_of(answer: Answer) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


def test_a_token_that_is_typed_begins_a_session(serving: HttpServing) -> None:
    """With the rights of that token; the page itself never keeps it."""
    _, text = add_token(serving.state / "tokens.json", "reader", Role.READ)
    answer = log_in(serving, f" {text}\n")  # as people paste it
    assert (answer.status, answer.body) == (204, b"")
    assert "content-length" not in answer.headers
    assert "transfer-encoding" not in answer.headers
    assert {"HttpOnly", "SameSite=Strict"} <= set(answer.headers["set-cookie"].split("; "))
    cookie = cookie_of(answer)
    told = serving.call("GET", "/v1/overview", token=None, Cookie=cookie).json
    assert told["me"] == {"name": "reader", "role": "read"}
    denied = serving.call(
        "POST", "/v1/requests/add", {"a": 1}, token=None, Cookie=cookie, Origin=serving.url
    )
    assert denied.status == 403


@pytest.mark.parametrize("token", ["", "x", "fb_" + "x" * 43, "é", "a" * 900])
def test_what_is_no_token_begins_none(serving: HttpServing, token: str) -> None:
    """Whatever was typed, the answer says no more than that."""
    answer = log_in(serving, token)
    assert (answer.status, "set-cookie" in answer.headers) == (401, False)
    assert answer.json["code"] == "unauthenticated"


def test_another_page_logs_nobody_in(serving: HttpServing) -> None:
    """Else a browser would act for a stranger, and its user would not see it."""
    for origin in ("", "null", "http://evil.example", serving.url + "0"):
        answer = log_in(serving, serving.token, Origin=origin)
        assert (answer.status, "set-cookie" in answer.headers) == (403, False), origin
    answer = log_in(serving, serving.token, Host="evil.example", Origin="http://evil.example")
    assert (answer.status, answer.json["code"]) == (421, "host")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 422),
        (b'{"token": 1}', 422),
        (b'{"token": "x", "more": 1}', 422),
        (b"{}", 422),
        (b"{" * 500, 400),
        (b'{"token": "\\ud800"}', 400),
        (json.dumps({"token": "x" * 1100}).encode(), 413),
        (b" " * 300_000, 413),
    ],
)
def test_a_login_that_is_none_is_refused(serving: HttpServing, body: bytes, status: int) -> None:
    """And one that is long is not read: no token is."""
    answer = serving.call("POST", "/login", body, token=None, Origin=serving.url)
    assert answer.status == status, answer.body


def test_a_long_login_in_pieces_is_cut(serving: HttpServing) -> None:
    """It has no length that could be looked at."""
    with serving.raw() as connection:
        head = (
            f"POST /login HTTP/1.1\r\nHost: 127.0.0.1:{serving.port}\r\nOrigin: {serving.url}\r\n"
        )
        connection.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        connection.sendall(b"400\r\n" + b"x" * 1024 + b"\r\n" + b"2\r\nxx\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")
        connection.sendall(b"0\r\n\r\n" + serving.head("GET", "/healthz", "Connection: close"))
        assert b"HTTP/1.1 200 " in received(connection)


def test_logging_out_ends_the_session(serving: HttpServing) -> None:
    """Who has kept the cookie has nothing."""
    cookie = cookie_of(log_in(serving, serving.token))
    other = cookie_of(log_in(serving, serving.token))
    denied = serving.call("POST", "/logout", token=None, Cookie=cookie)
    assert denied.status == 403  # another page cannot end it
    answer = serving.call("POST", "/logout", token=None, Cookie=cookie, Origin=serving.url)
    assert (answer.status, answer.body) == (204, b"")
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert serving.call("GET", "/v1/info", token=None, Cookie=cookie).status == 401
    assert serving.call("GET", "/v1/info", token=None, Cookie=other).status == 200


def test_a_stream_ends_with_its_session(serving: HttpServing) -> None:
    """Another tab shows nothing more either; streams of other sessions go on."""
    cookies = [cookie_of(log_in(serving, serving.token)) for _ in range(2)]
    with contextlib.ExitStack() as opened:
        streams = []
        for cookie in cookies:
            connection = opened.enter_context(serving.raw())
            head = f"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1:{serving.port}\r\n"
            connection.sendall(f"{head}Cookie: {cookie}\r\n\r\n".encode())
            assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
            streams.append(connection)
        serving.call("POST", "/logout", token=None, Cookie=cookies[0], Origin=serving.url)
        assert not received(streams[0]).endswith(b"0\r\n\r\n")
        id_ = serving.submit("add", a=1)
        text = b""
        while id_.encode() not in text:
            text += streams[1].recv(4096)


def test_a_session_of_a_token_ends_with_it(serving: HttpServing) -> None:
    """As one of a link does."""
    tokens = serving.state / "tokens.json"
    _, text = add_token(tokens, "guest", Role.READ)
    cookie = cookie_of(log_in(serving, text))
    assert serving.call("GET", "/v1/info", token=None, Cookie=cookie).status == 200
    remove_token(tokens, "guest")
    until(lambda: serving.call("GET", "/v1/info", token=None, Cookie=cookie).status == 401)
    assert log_in(serving, text).status == 401


def test_a_link_leads_to_the_page(serving: HttpServing) -> None:
    """Which is what `forebay serve` prints it for."""
    link = new_link(serving.state, serving.url, "local").removeprefix(serving.url)
    answer = serving.call("GET", link, token=None)
    assert (answer.status, answer.headers["location"]) == (303, "ui/")
    page = serving.call("GET", "/ui/", token=None, Accept_Encoding="identity")
    assert page.status == 200
    assert page.headers["x-content-type-options"] == "nosniff"
    kept = serving.call("GET", "/ui/", token=None, If_None_Match=page.headers["etag"])
    assert (kept.status, kept.body) == (304, b"")
    assert {"content-length", "transfer-encoding"}.isdisjoint(kept.headers)


def test_the_overview_is_that_of_the_server(serving: HttpServing) -> None:
    """What the page shows first, with the history that it goes on from."""
    id_ = serving.submit("fail", text="no")
    serving.result(id_)

    def told() -> bool:
        seen = serving.call("GET", "/v1/overview")
        assert seen.headers["cache-control"] == "no-store"
        return bool(seen.json["figures"]["failed"])

    assert until(told)
    seen = serving.call("GET", "/v1/overview").json
    assert seen["info"]["app"] == "small"
    assert set(seen["figures"]["lanes"]) == {"short", "long", "async"}
    assert set(seen["waits"]) == {"worker", "request", "time", "key", "name", "children"}
    assert {"slot", "pid", "lane", "state", "private_bytes"} <= set(seen["workers"][0])
    history = seen["history"]
    assert history["next"] - history["first"] == len(history["resident_bytes"]) >= 1
    assert history["resident_bytes"][-1] > 0
    rest = serving.call("GET", f"/v1/overview?since={history['next']}").json["history"]
    assert len(rest["resident_bytes"]) <= 1
    for wrong in ("x", "-1", "1&since=2", str(2**53 + 1)):
        assert serving.call("GET", f"/v1/overview?since={wrong}").status == 422, wrong
