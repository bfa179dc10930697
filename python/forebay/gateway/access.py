"""Whether a request of HTTP may be served: its Host, its token or session, its origin, its role.

The checks come in this order, so that a page that has rebound its name to this address learns
nothing, and a caller without a token learns nothing but that.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from forebay.gateway.login import SESSION_S, Sessions
from forebay.gateway.problems import Problem
from forebay.gateway.tokens import Role, Token, Tokens

__all__ = ["Access", "Address", "Headers"]

Headers = Iterable[tuple[bytes, bytes]]
"""As ASGI has them: names in lower case."""

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
EVERY_ADDRESS: Final = frozenset({"0.0.0.0", "::", ""})

UNCHANGING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""

READ: Final = frozenset({b"host", b"authorization", b"cookie", b"origin"})
"""The headers that decide."""

ACCEPTED_HOSTS_MAX: Final = 64
"""Spellings of a Host that are known to be right; others are looked at each time."""

_AUTHORITY: Final = re.compile(
    r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::[0-9]*)?"
)

MAKE_ONE: Final = "make a token with: forebay token add NAME --role read|submit|admin"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a gateway is reached.

    Attributes:
        host: the address that it is bound to: a name or an IP address.
        port: its port.
        tls: whether it speaks TLS itself.
        names: further names that it is called by.
    """

    host: str
    port: int
    tls: bool = False
    names: tuple[str, ...] = ()

    @property
    def is_every(self) -> bool:
        """Whether it is bound to every address of the machine."""
        return self.host in EVERY_ADDRESS

    @property
    def url(self) -> str:
        """As a client of this machine writes it; one at every address is reached by loopback."""
        loopback = "[::1]" if self.host == "::" else "127.0.0.1"
        host = f"[{self.host}]" if ":" in self.host else self.host
        scheme = "https" if self.tls else "http"
        return f"{scheme}://{loopback if self.is_every else host}:{self.port}"


class Access:
    """Decides on requests, and on links of browsers.

    Args:
        address: of the gateway.
        tokens: who may do what.
        sessions: of browsers.

    Threads: one, that of the gateway's event loop.
    """

    def __init__(self, address: Address, tokens: Tokens, sessions: Sessions) -> None:
        self._tokens = tokens
        self._sessions = sessions
        self._schemes = ("https",) if address.tls else ("http", "https")  # of a proxy before it
        named = (address.host, *address.names)
        self._hosts = {_folded(name) for name in named if name} | LOOPBACK
        self._is_every = address.is_every
        self._accepted: set[bytes] = set()
        # Cookies do not tell ports apart: those of two gateways of one machine have two names.
        self._cookie = f"forebay-{address.port}".encode()
        self._attributes = "; Secure" if address.tls else ""

    def check(self, headers: Headers, method: str, role: Role | None) -> Token | None:
        """The token of a request that may be served.

        Args:
            headers: of the request.
            method: "GET" and so on.
            role: what the route needs; None: nothing, nor a Host, since probes send any.

        Returns:
            The token; None where the route needs none.

        Raises:
            Problem: 421 `host`, 401 `unauthenticated` or 403 `forbidden`.
        """
        if role is None:
            return None
        shown = _shown(headers)
        self._check_host(shown)
        token = self._token_of(shown, method)
        if token.role < role:
            raise Problem(
                403,
                "forbidden",
                f"the token {token.name!r} has the role {token.role.word}, and this needs"
                f" {role.word}",
                object=token.name,
                limit=role.word,
                value=token.role.word,
                next="use the token of another role",
            )
        return token

    def lasts(self, headers: Headers, token: Token) -> bool:
        """Whether a request that was let in with a token still would be: for streams.

        Its token may have been removed or have expired, and its session have ended.
        """
        shown = _shown(headers)
        if b"authorization" not in shown:
            session = _cookie(shown.get(b"cookie"), self._cookie)
            return session is not None and self._sessions.find(session) == token
        return self._tokens.is_in_force(token)

    def enter(self, headers: Headers, key: str) -> list[tuple[bytes, bytes]]:
        """Use the link of a browser; returns the headers of the answer, which sets the cookie.

        Raises:
            Problem: 421 `host`; 401: the link is unknown, was used, or is older than five minutes.
        """
        self._check_host(_shown(headers))
        session = self._sessions.open(key)
        if session is None:
            raise _unauthenticated(
                "the link is unknown, was used, or is older than five minutes",
                "make another one with: forebay token link",
            )
        # The key has been used; that it stays in the address line and in histories harms nobody.
        return self._cookie_set(session, SESSION_S)

    def check_own_page(self, headers: Headers) -> None:
        """Refuse who is no page of this server, on a route that gives a cookie.

        Else another page could log a browser in as somebody else, whose user would then act for a
        stranger without seeing it.

        Raises:
            Problem: 421 `host`, or 403 `forbidden`.
        """
        shown = _shown(headers)
        self._check_host(shown)
        self._check_origin(shown)

    def enter_by_token(self, text: str) -> list[tuple[bytes, bytes]]:
        """Begin a session with the rights of a token; returns the headers of the answer.

        Nothing limits how often it is tried: nobody guesses 256 random bits.

        Raises:
            Problem: 401; the token is unknown, was removed, or has expired.
        """
        token = self._tokens.find(text.strip().encode(errors="replace"))
        if token is None:
            raise _unknown_token()
        return self._cookie_set(self._sessions.begin(token), SESSION_S)

    def leave(self, headers: Headers) -> list[tuple[bytes, bytes]]:
        """End the session of a request, if it has one; returns the headers of the answer."""
        session = _cookie(_shown(headers).get(b"cookie"), self._cookie)
        if session is not None:
            self._sessions.end(session)
        return self._cookie_set("", 0)

    def _cookie_set(self, session: str, age_s: float) -> list[tuple[bytes, bytes]]:
        attributes = f"Path=/; Max-Age={age_s:.0f}; HttpOnly; SameSite=Strict"
        cookie = f"{self._cookie.decode()}={session}; {attributes}{self._attributes}"
        return [(b"set-cookie", cookie.encode()), (b"cache-control", b"no-store")]

    def _check_host(self, shown: dict[bytes, bytes | None]) -> None:
        given = shown.get(b"host")
        if given in self._accepted:
            return
        text = "" if given is None else given.decode("latin-1")
        host = _host_of(text)
        if host in self._hosts or (self._is_every and _is_address(host)):
            if given is not None and len(self._accepted) < ACCEPTED_HOSTS_MAX:
                self._accepted.add(given)
            return
        raise Problem(
            421,
            "host",
            f"the Host {text!r} is not this server's" if text else "there is not one Host",
            object="Host",
            value=text,
            next="reach it by its address, or start it with: forebay serve --http-name NAME",
        )

    def _token_of(self, shown: dict[bytes, bytes | None], method: str) -> Token:
        if b"authorization" in shown:
            return self._bearer(shown[b"authorization"])
        session = _cookie(shown.get(b"cookie"), self._cookie)
        if session is None:
            raise _unauthenticated("there is no token", "send Authorization: Bearer TOKEN")
        token = self._sessions.find(session)
        if token is None:
            raise _unauthenticated(
                "the session has ended", "make another link with: forebay token link"
            )
        if method not in UNCHANGING:
            self._check_origin(shown)
        return token

    def _bearer(self, value: bytes | None) -> Token:
        scheme, _, presented = (value or b"").partition(b" ")
        if scheme.lower() != b"bearer":
            raise _unauthenticated("there is no token", "send Authorization: Bearer TOKEN")
        token = self._tokens.find(presented.strip())
        if token is None:
            raise _unknown_token()
        return token

    def _check_origin(self, shown: dict[bytes, bytes | None]) -> None:
        """A browser sends the cookie with what other pages have it do; only they cannot lie here.

        SameSite does not suffice: pages at other ports of this host are of the same site.
        """
        origin = (shown.get(b"origin") or b"").decode("latin-1")
        scheme, _, authority = origin.partition("://")
        host = (shown.get(b"host") or b"").decode("latin-1")
        if scheme in self._schemes and authority.lower() == host.lower():
            return
        raise Problem(
            403,
            "forbidden",
            f"the request changes something, has a cookie, and comes from {origin or 'no origin'}",
            object="Origin",
            value=origin,
            next="use the page of this server, or a token in the header Authorization",
        )


def _shown(headers: Headers) -> dict[bytes, bytes | None]:
    """The headers that decide; None stands for one that is there twice, whichever was meant."""
    found: dict[bytes, bytes | None] = {}
    for name, value in headers:
        if name in READ:
            found[name] = None if name in found else value
    return found


def _host_of(authority: str) -> str:
    """The host in lower case, without its port; empty where it is none."""
    found = _AUTHORITY.fullmatch(authority)
    return "" if found is None else _folded(found["address"] or found["name"])


def _folded(host: str) -> str:
    """A name in lower case without its last dot, an address in its short form."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.lower().removesuffix(".")


def _is_address(host: str) -> bool:
    """Whether it is an IP address: no name is rebound to it, since there is none."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _cookie(header: bytes | None, name: bytes) -> bytes | None:
    """The value of one cookie; None where it is not there, or there twice."""
    pairs = (part.strip().partition(b"=") for part in (header or b"").split(b";"))
    values = [value for key, _, value in pairs if key == name]
    return values[0] if len(values) == 1 else None


def _unknown_token() -> Problem:
    return _unauthenticated("the token is unknown, was removed, or has expired", MAKE_ONE)


def _unauthenticated(why: str, next_step: str) -> Problem:
    return Problem(
        401,
        "unauthenticated",
        why,
        next=next_step,
        headers=[(b"www-authenticate", b'Bearer realm="forebay"')],
    )
