"""Where the shards of a server listen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from forebay.errors import ConfigError
from forebay.transport._internal import PORT_MAX, parse

__all__ = ["address_of", "addresses", "chosen"]

PLACEHOLDER = "{shard}"
SHARDS_MAX = 4096


VERBS = "verbs://"
"""`tcp://`, with verbs as the fabric."""


@overload
def chosen(url: str, fabric: str | None) -> tuple[str, str | None]: ...


@overload
def chosen(url: Sequence[str], fabric: str | None) -> tuple[str | list[str], str | None]: ...


def chosen(url: str | Sequence[str], fabric: str | None) -> tuple[str | list[str], str | None]:
    """The URL that is connected to, and the fabric, which a URL of verbs chooses; or several.

    Raises:
        ConfigError: another fabric is asked for, or not all URLs are of verbs.
    """
    urls = [url] if isinstance(url, str) else [str(each) for each in url]
    of_verbs = [each for each in urls if each.startswith(VERBS)]
    if not of_verbs:
        return url if isinstance(url, str) else urls, fabric
    if fabric not in (None, "auto", "verbs"):
        raise ConfigError(
            f"{of_verbs[0]} goes over verbs, and fabric is {fabric!r}; leave one of them out"
        )
    if len(of_verbs) < len(urls):
        raise ConfigError(f"{of_verbs[0]} goes over verbs, and not all URLs do; give all so")
    plain = ["tcp://" + each.removeprefix(VERBS) for each in urls]
    return plain[0] if isinstance(url, str) else plain, "verbs"


def address_of(url: str, shard: int, shards: int) -> str:
    """The URL of one shard: its number in place of `{shard}`, or so many ports further.

    Raises:
        ConfigError: it would be the URL of another shard too, or of no port.
    """
    if not 0 <= shard < shards <= SHARDS_MAX:
        raise ConfigError(
            f"shard is {shard} of {shards}; give 0 to shards - 1, at most {SHARDS_MAX}"
        )
    if PLACEHOLDER in url:
        return url.replace(PLACEHOLDER, str(shard))
    address = parse(url)
    if shards == 1 or (address.port == 0 and address.scheme in ("tcp", "tls")):
        return url
    if address.scheme not in ("tcp", "tls"):
        raise ConfigError(f"{url} is one path for {shards} shards; put {PLACEHOLDER} into it")
    port = address.port + shard
    if port > PORT_MAX:
        raise ConfigError(f"{url}: shard {shard} would listen on port {port}; begin lower")
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{address.scheme}://{host}:{port}"


def addresses(url: str | Sequence[str], shards: int | None) -> list[str]:
    """The URLs of all shards, the first row's first.

    Raises:
        ConfigError: no URL is given, or their number is not `shards`.
    """
    if isinstance(url, str):
        count = 1 if shards is None else shards
        found = [address_of(url, shard, count) for shard in range(count)]
        if len(set(found)) != count:
            raise ConfigError(f"{url} has no port, so its {shards} shards would have one address")
    else:
        found = [str(each) for each in url]
        if shards is not None and shards != len(found):
            raise ConfigError(f"{len(found)} URLs are given for {shards} shards")
    if not found:
        raise ConfigError("no URL is given; give that of each shard, the first row's first")
    for each in found:
        scheme = parse(each).scheme
        if scheme not in ("tcp", "tls", "unix"):
            raise ConfigError(f"{each}: tensors go over tcp://, tls:// and unix://")
    return found
