"""Who is let in: hosts, tokens, sessions of browsers, origins, roles."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from forebay.errors import ConfigError
from forebay.gateway.access import Access, Address
from forebay.gateway.login import (
    LINK_S,
    SESSION_S,
    SESSIONS_OF_TOKEN_MAX,
    Sessions,
    new_link,
)
from forebay.gateway.problems import Problem
from forebay.gateway.token_file import add_token, remove_token
from forebay.gateway.tokens import Role, Tokens
from tests.gateway.test_tokens import Clock

HOST = (b"host", b"127.0.0.1:8000")


class Door(NamedTuple):
    """An access with a token of each role."""

    access: Access
    state: Path
    texts: dict[str, str]
    clock: Clock
    timer: Clock

    def link(self, name: str = "admin") -> str:
        """The key of a new link."""
        return new_link(self.state, "http://127.0.0.1:8000", name).partition("?key=")[2]

    def cookie(self, name: str = "admin") -> tuple[bytes, bytes]:
        """The header of a browser that has used a link."""
        headers = dict(self.access.enter([HOST], self.link(name)))
        return b"cookie", headers[b"set-cookie"].partition(b";")[0]

    def bearer(self, name: str) -> tuple[bytes, bytes]:
        """The header of a token."""
        return b"authorization", f"Bearer {self.texts[name]}".encode()


@pytest.fixture
def door(tmp_path: Path) -> Callable[..., Door]:
    def make(**address: object) -> Door:
        state = tmp_path / "state"
        path = state / "tokens.json"
        texts = {role.word: add_token(path, role.word, role)[1] for role in Role}
        clock, timer = Clock(os.stat(path).st_mtime), Clock(100.0)
        tokens = Tokens(path, clock=clock, timer=timer)
        at = Address(**{"host": "127.0.0.1", "port": 8000, **address})  # type: ignore[arg-type]
        return Door(
            Access(at, tokens, Sessions(state, tokens, clock=clock)), state, texts, clock, timer
        )

    return make


def refused(call: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(Problem) as caught:
        call()
    return caught.value.status, caught.value.code


def test_a_token_of_enough_role_is_let_in(door: Callable[..., Door]) -> None:
    """And nothing else is."""
    it = door()
    for needed in Role:
        for had in Role:
            headers = [HOST, it.bearer(had.word)]
            if had >= needed:
                found = it.access.check(headers, "POST", needed)
                assert found is not None
                assert found.name == had.word
            else:
                assert refused(lambda h=headers, n=needed: it.access.check(h, "POST", n)) == (  # type: ignore[misc]
                    403,
                    "forbidden",
                )
    assert it.access.check([], "GET", None) is None


WRONG: dict[str, list[tuple[bytes, bytes]]] = {
    "nothing": [],
    "empty": [(b"authorization", b"")],
    "another scheme": [(b"authorization", b"Basic YTpi")],
    "no scheme": [(b"authorization", b"fb_x")],
    "unknown": [(b"authorization", b"Bearer fb_" + b"x" * 43)],
    "long": [(b"authorization", b"Bearer " + b"x" * 60_000)],
    "no text": [(b"authorization", b"Bearer \xff\x00")],
    "an unknown cookie": [(b"cookie", b"forebay-8000=x")],
    "the cookie of another port": [(b"cookie", b"forebay-8001=x")],
    "half a cookie": [(b"cookie", b"forebay-8000")],
}


@pytest.mark.parametrize("headers", WRONG.values(), ids=WRONG)
def test_what_is_no_token_is_unauthenticated(
    door: Callable[..., Door], headers: list[tuple[bytes, bytes]]
) -> None:
    """Whatever it is; and the answer says which scheme there is."""
    it = door()
    with pytest.raises(Problem) as caught:
        it.access.check([HOST, *headers], "GET", Role.READ)
    assert (caught.value.status, caught.value.code) == (401, "unauthenticated")
    assert (b"www-authenticate", b'Bearer realm="forebay"') in caught.value.headers


def test_two_tokens_are_none(door: Callable[..., Door]) -> None:
    """A proxy and this server might each take another one."""
    it = door()
    twice = [HOST, it.bearer("admin"), it.bearer("read")]
    assert refused(lambda: it.access.check(twice, "GET", Role.READ)) == (401, "unauthenticated")


HOSTS = {
    b"127.0.0.1": True,
    b"127.0.0.1:8000": True,
    b"localhost:8000": True,
    b"LOCALHOST.": True,
    b"[::1]:8000": True,
    b"[0:0:0:0:0:0:0:1]": True,
    b"forebay.corp:443": True,
    b"evil.example": False,
    b"evil.example:8000": False,
    b"127.0.0.1.evil.example": False,
    b"localhost@evil.example": False,
    b"localhost:8000:1": False,
    b"[::1": False,
    b"": False,
    b"10.0.0.7:8000": False,
    b"localhost/": False,
    b"\xff": False,
}


@pytest.mark.parametrize("host", HOSTS)
def test_only_the_names_of_this_server_are_its_host(door: Callable[..., Door], host: bytes) -> None:
    """A page whose name was rebound to this address sends that name, with any header it likes."""
    it = door(names=("forebay.corp",))
    headers = [(b"host", host), it.bearer("read")]
    for _ in range(2):  # what was accepted once is remembered
        if HOSTS[host]:
            assert it.access.check(headers, "GET", Role.READ) is not None
        else:
            assert refused(lambda: it.access.check(headers, "GET", Role.READ)) == (421, "host")


def test_there_is_one_host(door: Callable[..., Door]) -> None:
    """None and two are refused, before any token is looked at."""
    it = door()
    for hosts in ([], [HOST, HOST], [HOST, (b"host", b"evil.example")]):
        headers = [*hosts, it.bearer("admin")]
        assert refused(lambda h=headers: it.access.check(h, "GET", Role.READ)) == (421, "host")  # type: ignore[misc]


def test_a_server_at_every_address_has_each_as_its_host(door: Callable[..., Door]) -> None:
    """An address is no name that could be rebound."""
    it = door(host="0.0.0.0")
    for host, is_known in ((b"10.0.0.7:8000", True), (b"[fe80::1]", True), (b"evil", False)):
        headers = [(b"host", host), it.bearer("read")]
        if is_known:
            assert it.access.check(headers, "GET", Role.READ) is not None
        else:
            assert refused(lambda h=headers: it.access.check(h, "GET", Role.READ))[0] == 421  # type: ignore[misc]


def test_addresses_as_clients_write_them() -> None:
    """They stand in the file of the local token, and in the link."""
    assert Address("0.0.0.0", 80).url == "http://127.0.0.1:80"
    assert Address("::", 80, tls=True).url == "https://[::1]:80"
    assert Address("::1", 80).url == "http://[::1]:80"
    assert Address("forebay.corp", 443, tls=True).url == "https://forebay.corp:443"


def test_a_link_works_once(door: Callable[..., Door]) -> None:
    """Whoever finds it in a history or a log has nothing."""
    it = door()
    key = it.link()
    assert it.access.enter([HOST], key)
    assert refused(lambda: it.access.enter([HOST], key)) == (401, "unauthenticated")
    assert list((it.state / "login").iterdir()) == []


def test_a_link_is_over_after_five_minutes(door: Callable[..., Door]) -> None:
    """And its file goes with the next one that is made."""
    it = door()
    key = it.link()
    (file,) = (it.state / "login").iterdir()
    it.clock.now = os.stat(file).st_mtime + LINK_S + 1
    assert refused(lambda: it.access.enter([HOST], key)) == (401, "unauthenticated")
    abandoned = it.link()
    path = next((it.state / "login").iterdir())
    os.utime(path, (0, 0))
    it.link()
    assert not path.exists()
    assert refused(lambda: it.access.enter([HOST], abandoned))[0] == 401


@pytest.mark.parametrize("key", ["", "x" * 43, "../tokens.json", "x" * 5000, "\0"])
def test_a_key_that_is_none_opens_nothing(door: Callable[..., Door], key: str) -> None:
    """Nor does it name a file."""
    it = door()
    assert refused(lambda: it.access.enter([HOST], key)) == (401, "unauthenticated")


def test_a_link_is_refused_at_another_host(door: Callable[..., Door]) -> None:
    """And can still be used at this one."""
    it = door()
    key = it.link()
    evil = [(b"host", b"evil.example")]
    assert refused(lambda: it.access.enter(evil, key)) == (421, "host")
    assert it.access.enter([HOST], key)


def test_links_that_nobody_uses_have_a_limit(door: Callable[..., Door]) -> None:
    """A loop that makes them fills no disk."""
    it = door()
    for _ in range(100):
        it.link()
    with pytest.raises(ConfigError, match="not used"):
        it.link()


@pytest.mark.parametrize("tls", [False, True])
def test_the_cookie_is_for_the_browser_alone(door: Callable[..., Door], tls: bool) -> None:
    """No script reads it, no other site sends it, and under TLS no wire shows it."""
    it = door(tls=tls)
    headers = dict(it.access.enter([HOST], it.link()))
    name, *attributes = headers[b"set-cookie"].decode().split("; ")
    assert name.startswith("forebay-8000=")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(attributes)
    assert ("Secure" in attributes) == tls
    assert headers[b"cache-control"] == b"no-store"


def test_a_session_has_the_rights_of_its_token(door: Callable[..., Door]) -> None:
    """Also where other cookies of the host come with it."""
    it = door()
    name, cookie = it.cookie("read")
    headers = [HOST, (name, b"a=b; " + cookie + b"; c=d")]
    found = it.access.check(headers, "GET", Role.READ)
    assert found is not None
    assert found.name == "read"
    assert refused(lambda: it.access.check(headers, "GET", Role.ADMIN)) == (403, "forbidden")
    two = [HOST, (name, cookie + b"; " + cookie)]
    assert refused(lambda: it.access.check(two, "GET", Role.READ)) == (401, "unauthenticated")


def test_a_session_ends_with_its_token_and_its_day(door: Callable[..., Door]) -> None:
    """A removed token leaves no way in."""
    it = door()
    first, second = it.cookie("admin"), it.cookie("read")
    assert it.access.check([HOST, first], "GET", Role.READ) is not None
    remove_token(it.state / "tokens.json", "admin")
    it.timer.now += 1
    assert refused(lambda: it.access.check([HOST, first], "GET", Role.READ))[0] == 401
    assert it.access.check([HOST, second], "GET", Role.READ) is not None
    it.clock.now += SESSION_S
    assert refused(lambda: it.access.check([HOST, second], "GET", Role.READ))[0] == 401


def test_a_token_ends_no_session_of_another(door: Callable[..., Door]) -> None:
    """Who may only read could else log the others out, by logging in a thousand times."""
    it = door()
    other, oldest, second = it.cookie("admin"), it.cookie("read"), it.cookie("read")
    for _ in range(SESSIONS_OF_TOKEN_MAX - 1):
        it.cookie("read")
    assert it.access.check([HOST, other], "GET", Role.READ) is not None
    assert refused(lambda: it.access.check([HOST, oldest], "GET", Role.READ))[0] == 401
    assert it.access.check([HOST, second], "GET", Role.READ) is not None


ORIGINS = {
    b"http://127.0.0.1:8000": True,
    b"https://127.0.0.1:8000": True,  # behind a proxy that speaks TLS
    b"HTTP://127.0.0.1:8000": False,
    b"http://127.0.0.1:9000": False,  # of the same site, for a browser
    b"http://127.0.0.1": False,
    b"http://localhost:8000": False,
    b"http://evil.example": False,
    b"null": False,
    b"": False,
    None: False,
}


@pytest.mark.parametrize("origin", ORIGINS)
def test_a_cookie_changes_nothing_from_another_origin(
    door: Callable[..., Door], origin: bytes | None
) -> None:
    """A page in a browser can send a form here; it cannot say that it is ours."""
    it = door()
    headers = [HOST, it.cookie()]
    if origin is not None:
        headers.append((b"origin", origin))
    assert it.access.check(headers, "GET", Role.READ) is not None
    if ORIGINS[origin]:
        assert it.access.check(headers, "POST", Role.SUBMIT) is not None
    else:
        assert refused(lambda: it.access.check(headers, "POST", Role.SUBMIT)) == (403, "forbidden")


def test_under_tls_the_origin_is_too(door: Callable[..., Door]) -> None:
    """Who sits on the wire can be any http:// page."""
    it = door(tls=True)
    headers = [HOST, it.cookie(), (b"origin", b"http://127.0.0.1:8000")]
    assert refused(lambda: it.access.check(headers, "POST", Role.SUBMIT)) == (403, "forbidden")


def test_a_token_needs_no_origin(door: Callable[..., Door]) -> None:
    """No page can send one; programs send none."""
    it = door()
    headers = [HOST, it.bearer("submit"), (b"origin", b"http://evil.example"), it.cookie()]
    found = it.access.check(headers, "POST", Role.SUBMIT)
    assert found is not None
    assert found.name == "submit"
