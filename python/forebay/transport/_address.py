"""Where a connection goes: `tcp://host:port`, `tls://host:port`, `unix:///path`, `shm:///path`."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from forebay.errors import ConfigError

IP_SCHEMES = ("tcp", "tls")
PATH_SCHEMES = ("unix", "shm")
PORT_MAX = 65_535
LOOPBACK_NAMES = frozenset({"localhost", "ip6-localhost"})


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed URL: host and port for `tcp` and `tls`, a path for `unix` and `shm`."""

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.scheme in PATH_SCHEMES:
            return f"{self.scheme}://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether its name says that no other machine can reach it."""
        if self.scheme in PATH_SCHEMES or self.host in LOOPBACK_NAMES:
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def receiving(url: str, allocate: object) -> Address:
    """The address of a connection whose frames are received by `allocate`, where that is given.

    Raises:
        ConfigError: as `parse`; or nothing is received there.
    """
    address = parse(url)
    if allocate is not None and address.scheme == "shm":
        raise ConfigError(
            f"{url}: long frames stay in the sender's memory, so allocate= has no use"
        )
    return address


def parse(url: str) -> Address:
    """The address that a URL names.

    Raises:
        ConfigError: it is no address; the message says what is missing.
    """
    parts = urlsplit(url)
    if parts.scheme in PATH_SCHEMES:
        if parts.netloc or not parts.path:
            raise ConfigError(
                f"{url!r} names no socket: three slashes and a path, as {parts.scheme}:///run/a.sock"
            )
        return Address(parts.scheme, path=parts.path)
    if parts.scheme not in IP_SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in (*IP_SCHEMES, *PATH_SCHEMES))
        raise ConfigError(f"{url!r} has no scheme that is spoken here ({known})")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ConfigError(f"the port of {url!r} is no number from 0 to {PORT_MAX}") from None
    if not host or port is None or parts.path not in ("", "/"):
        raise ConfigError(f"{url!r} needs a host and a port, as {parts.scheme}://127.0.0.1:7000")
    return Address(parts.scheme, host, port)
