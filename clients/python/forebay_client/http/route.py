"""Where a gateway is, and by which way it is reached."""

from __future__ import annotations

import base64
import ipaddress
import os
import ssl
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Final

from forebay_client.errors import ConfigError
from forebay_client.http.hidden import Hidden

__all__ = ["Proxy", "Route", "find_route"]

PORTS: Final = {"http": 80, "https": 443}
PROXY_PORT: Final = 8080


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy; `authorization` is the value of its field, where it wants one."""

    host: str
    port: int
    authorization: Hidden | None

    @property
    def name(self) -> str:
        """As messages call it: without a password."""
        return f"the proxy {_bracketed(self.host)}:{self.port}"


@dataclass(frozen=True, slots=True)
class Route:
    """A gateway.

    Attributes:
        url: as it was given, without a slash at its end.
        base: the path of the URL, in front of every path of the contract.
        tls: None for plain HTTP.
        proxy: by which it is reached; None: directly.
    """

    url: str
    host: str
    port: int
    base: str
    tls: ssl.SSLContext | None
    proxy: Proxy | None

    @property
    def authority(self) -> str:
        """The value of `Host`."""
        scheme = "http" if self.tls is None else "https"
        host = _bracketed(self.host)
        return host if self.port == PORTS[scheme] else f"{host}:{self.port}"

    @property
    def tunnel(self) -> str:
        """What `CONNECT` asks a proxy for."""
        return f"{_bracketed(self.host)}:{self.port}"

    @property
    def prefix(self) -> str:
        """What stands in front of a path in the first line of a request."""
        if self.tls is None and self.proxy is not None:
            return f"http://{self.authority}{self.base}"
        return self.base


def find_route(
    url: str,
    *,
    ca_file: str | os.PathLike[str] | None,
    proxy: str | None,
    has_token: bool,
    plain_http: bool,
) -> Route:
    """The route to a gateway.

    Args:
        url: `https://host:port`, or `http://` to a loopback address.
        ca_file: certificates in PEM by which the gateway's is verified, instead of the system's.
        proxy: URL of an HTTP proxy; None: that of the environment or the system; "": none.
        has_token: a token goes over it.
        plain_http: whether a token may go to another machine without TLS.

    Raises:
        ConfigError: the URL, the file or the proxy is wrong, or the token would go in plain text.
    """
    parts = _split(url, "url")
    if parts.scheme not in PORTS:
        raise ConfigError(f"url {_shown(parts)!r}: its scheme is {parts.scheme!r}; use https://")
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigError(f"url {_shown(parts)!r}: give the address alone, and the token as token=")
    host, port = _host_port(parts, PORTS[parts.scheme])
    loopback = _is_loopback(host)
    tls = None
    if parts.scheme == "https":
        tls = _context(ca_file)
    elif ca_file is not None:
        raise ConfigError(f"ca_file is given and url {url!r} is not https://; use https://")
    found = None if loopback and proxy is None else _proxy(parts.scheme, host, port, proxy)
    stays_here = loopback and (found is None or _is_loopback(found.host))
    if tls is None and has_token and not stays_here and not plain_http:
        by = "" if found is None else f", by {found.name}"
        raise ConfigError(
            f"url {url!r} would send the token to another machine{by} in plain text; use https://,"
            " or allow it with plain_http=True"
        )
    return Route(url.rstrip("/"), host, port, parts.path.rstrip("/"), tls, found)


def _split(url: str, what: str) -> urllib.parse.SplitResult:
    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ConfigError(f"{what} is no URL: {error}; write https://host:port") from None
    if not parts.hostname or any(ord(char) <= 32 or ord(char) >= 127 for char in url):
        raise ConfigError(f"{what} names no host; write https://host:port")
    return parts


def _host_port(parts: urllib.parse.SplitResult, default: int) -> tuple[str, int]:
    assert parts.hostname is not None  # `_split` has looked
    return parts.hostname, default if parts.port is None else parts.port


def _shown(parts: urllib.parse.SplitResult) -> str:
    """A URL without what may be a secret."""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _context(ca_file: str | os.PathLike[str] | None) -> ssl.SSLContext:
    """TLS that verifies the gateway's certificate and name, always."""
    try:
        context = ssl.create_default_context(cafile=None if ca_file is None else os.fspath(ca_file))
    except (OSError, ssl.SSLError) as error:
        named = "the system's certificates" if ca_file is None else f"ca_file {str(ca_file)!r}"
        raise ConfigError(f"{named} cannot be loaded: {error.strerror or error}") from None
    context.set_alpn_protocols(["http/1.1"])
    return context


def _proxy(scheme: str, host: str, port: int, given: str | None) -> Proxy | None:
    """The proxy that was given, or else that of the environment, or of the system's settings."""
    if given is None:
        if urllib.request.proxy_bypass(f"{host}:{port}") or urllib.request.proxy_bypass(host):
            return None
        found = urllib.request.getproxies()
        given = found.get(scheme) or found.get("all")
    if not given:
        return None
    parts = _split(given if "://" in given else f"http://{given}", "the proxy")
    if parts.scheme != "http":
        raise ConfigError(
            f"the proxy {_shown(parts)!r}: its scheme is {parts.scheme!r}; write http://host:port"
        )
    return Proxy(*_host_port(parts, PROXY_PORT), _credentials(parts))


def _credentials(parts: urllib.parse.SplitResult) -> Hidden | None:
    if parts.username is None:
        return None
    words = map(urllib.parse.unquote, (parts.username, parts.password or ""))
    return Hidden(f"Basic {base64.b64encode(':'.join(words).encode()).decode()}")
