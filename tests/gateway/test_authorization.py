"""The authorization matrix: every route with every credential, on a real server.

A route without a row, a row without a route in the page, and a route whose role is another one than
its row says, each fail.
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from forebay.gateway.login import new_link
from forebay.gateway.routes.every import ROUTES
from forebay.gateway.token_file import add_token
from forebay.gateway.tokens import Role
from tests.executor.serving import until
from tests.gateway.http.http_serving import HttpServing

PAGE = Path(__file__).resolve().parents[2] / "docs" / "concepts" / "gateway.md"
READ, SUBMIT, ADMIN = Role

MATRIX: Final[dict[tuple[str, str], Role | None]] = {
    ("POST", "/v1/requests/{}"): SUBMIT,
    ("POST", "/v1/requests"): SUBMIT,
    ("POST", "/v1/batch"): SUBMIT,
    ("GET", "/v1/requests"): READ,
    ("GET", "/v1/requests/{}"): READ,
    ("GET", "/v1/requests/{}/show"): READ,
    ("GET", "/v1/requests/{}/why"): READ,
    ("GET", "/v1/requests/{}/arguments"): READ,
    ("GET", "/v1/requests/{}/result"): READ,
    ("GET", "/v1/requests/{}/logs"): READ,
    ("GET", "/v1/requests/{}/items"): READ,
    ("GET", "/v1/requests/{}/events"): READ,
    ("POST", "/v1/requests/{}/cancel"): SUBMIT,
    ("POST", "/v1/requests/{}/retry"): SUBMIT,
    ("GET", "/v1/events"): READ,
    ("GET", "/v1/overview"): READ,
    ("GET", "/v1/workers"): READ,
    ("GET", "/v1/services"): READ,
    ("GET", "/v1/schedules"): READ,
    ("GET", "/v1/manifest"): READ,
    ("GET", "/v1/info"): READ,
    ("POST", "/v1/schedules/{}/pause"): ADMIN,
    ("POST", "/v1/schedules/{}/resume"): ADMIN,
    ("POST", "/v1/prune"): ADMIN,
    ("POST", "/v1/cordon"): ADMIN,
    ("POST", "/v1/reload"): ADMIN,
    ("POST", "/v1/stop"): ADMIN,
    ("GET", "/openapi.json"): READ,
    ("GET", "/metrics"): READ,
    ("GET", "/healthz"): None,
    ("GET", "/readyz"): None,
    ("GET", "/login"): None,
    ("POST", "/login"): None,
    ("POST", "/logout"): READ,
    ("GET", "/"): None,
    ("GET", "/ui"): None,
    ("GET", "/ui/"): None,
    ("GET", "/ui/{}"): None,
}
"""What each route needs."""

BODIES: Final = {
    "/v1/stop": b'{"grace": "soon"}',
    "/v1/prune": b'{"dry_run": true}',
    "/v1/cordon": b'{"undo": true}',
}
"""So that who may does not end or close the server of the other rows."""

OWN_CHECKS: Final = {("GET", "/login"): 401, ("POST", "/login"): 403}
"""Routes that need no token, and what they answer to a request without anything."""

pytestmark = pytest.mark.leaks(reason="the server of the module is there until its last test")


class Door(NamedTuple):
    """A server with a token of each role, one that has expired, and sessions of browsers."""

    serving: HttpServing
    tokens: dict[str, str]

    def cookie(self) -> str:
        """Of a session that has begun now."""
        link = new_link(self.serving.state, self.serving.url, "admin")
        answer = self.serving.call("GET", link.removeprefix(self.serving.url), token=None)
        assert answer.status == 303
        return answer.headers["set-cookie"].partition(";")[0]


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with HttpServing(tmp_path_factory.mktemp("serving")) as serving:
        path = serving.state / "tokens.json"
        tokens = {role.word: add_token(path, role.word, role)[1] for role in Role}
        tokens["expired"] = add_token(path, "expired", Role.ADMIN, expires_s=0.001)[1]
        tokens["wrong"] = "fb_" + "x" * 43
        until_known(serving, tokens["admin"])
        yield Door(serving, tokens)


def until_known(serving: HttpServing, token: str) -> None:
    """The gateway looks at the file once a second."""
    until(lambda: serving.call("GET", "/v1/info", token=token).status == 200)


def status(door: Door, method: str, path: str, **headers: str) -> int:
    """What is answered; the rest of a stream is not waited for."""
    connection = http.client.HTTPConnection("127.0.0.1", door.serving.port, timeout=20)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        body = BODIES.get(path, b"{}") if method == "POST" else None
        connection.request(method, path.replace("{}", "000000000000"), body, named)
        return connection.getresponse().status
    finally:
        connection.close()


def documented() -> dict[tuple[str, str], Role | None]:
    """The table of the page; of several paths in a cell, the later ones are alike or end alike."""
    found: dict[tuple[str, str], Role | None] = {}
    for line in PAGE.read_text().splitlines():
        if not re.match(r"\| `(GET|POST) /", line):
            continue
        cell, role = line.split("|")[1:3]
        method, first = re.findall(r"`([A-Z]+) ([^`]+)`", cell)[0]
        paths = [first]
        for more in re.findall(r"`(/[^`]+)`", cell):
            is_whole = more.count("/") > 1
            paths.append(more if is_whole else first.rpartition("/")[0] + more)
        for path in paths:
            needed = None if role.strip() == "none" else Role.named(role.strip())
            found[method, re.sub(r"\{\w+\}", "{}", path)] = needed
    return found


def test_the_page_says_what_each_route_needs() -> None:
    """Who gives a token to somebody reads it there."""
    assert documented() == MATRIX


def test_every_route_has_its_row() -> None:
    """A new one that was forgotten here would be open, or closed, to whoever it likes."""
    routes = {(route.method, route.path): route.role for route in ROUTES}
    assert routes == {key: MATRIX.get(key, "no row") for key in routes}


ROWS = [pytest.param(route, id=f"{route.method} {route.path}") for route in ROUTES]


@pytest.mark.parametrize("route", ROWS)
def test_a_route_is_open_to_its_role_and_those_above(door: Door, route: Any) -> None:
    """And to nobody else: without a token, with a wrong one, or with one that has expired."""
    needed = route.role
    methods = ("GET", "HEAD") if route.method == "GET" else (route.method,)
    for method in methods:
        for name in ("", "wrong", "expired", *(role.word for role in Role)):
            headers = {"Authorization": f"Bearer {door.tokens[name]}"} if name else {}
            found = status(door, method, route.path, **headers)
            if needed is None:
                expected = OWN_CHECKS.get((route.method, route.path))
                assert found == expected if expected else found not in (401, 403), name
            elif name in ("", "wrong", "expired"):
                assert found == 401, name
            elif Role.named(name) < needed:
                assert found == 403, name
            else:
                assert found not in (401, 403, 404, 405, 421) or "{}" in route.path, (name, found)
                assert found not in (401, 403, 405, 421), (name, found)


@pytest.mark.parametrize("route", ROWS)
def test_a_browser_changes_nothing_for_another_page(door: Door, route: Any) -> None:
    """The cookie looks, and changes with the origin of this server alone."""
    if route.role is None:
        return
    port = door.serving.port
    own = f"http://127.0.0.1:{port}"
    others = ("", "null", "http://evil.example", f"http://127.0.0.1:{port + 1}", own + "0")
    cookie = door.cookie()
    for origin in (*others, own):  # the last of them may end the session
        headers = {"Cookie": cookie} | ({"Origin": origin} if origin else {})
        found = status(door, route.method, route.path, **headers)
        if route.method == "GET" or origin == own:
            assert found not in (401, 403, 421), (origin, found)
        else:
            assert found == 403, (origin, found)
    assert status(door, route.method, route.path, Cookie="forebay-1=x", Origin=own) == 401


@pytest.mark.parametrize("route", ROWS)
def test_another_host_gets_nothing(door: Door, route: Any) -> None:
    """Not even with the token of an administrator, which a page has not; probes have any Host."""
    token = f"Bearer {door.tokens['admin']}"
    found = status(door, route.method, route.path, Host="evil.example", Authorization=token)
    is_open = route.role is None and (route.method, route.path) not in OWN_CHECKS
    assert found != 421 if is_open else found == 421, found
