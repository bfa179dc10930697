"""Clients of a server that is reached over HTTP: those of the package forebay-client.

They are clients of this package too, by `isinstance`; what they do is the other's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from forebay.errors import ConfigError

__all__ = ["check_local", "client_class", "remote_url"]

SCHEMES: Final = ("https://", "http://")


def remote_url(url: str | None, app: str | None) -> str | None:
    """The URL where it is a gateway's: an argument, or else a setting; None: it is none."""
    if url is None and app is None:
        from forebay.configuration import find_configuration

        url = find_configuration().value("url")
    return url if url is not None and url.startswith(SCHEMES) else None


def check_local(
    token: str | None,
    token_file: str | None,
    ca_file: str | None,
    proxy: str | None,
    *,
    plain_http: bool,
) -> None:
    """Nothing of what a gateway needs may be given for a server on this machine.

    Raises:
        ConfigError: something is.
    """
    given = {"token": token, "token_file": token_file, "ca_file": ca_file, "proxy": proxy}
    named = [name for name, value in given.items() if value is not None]
    if named or plain_http:
        name = named[0] if named else "plain_http"
        raise ConfigError(f"{name} is for a gateway; give its address too: https://host:port")


def client_class(after: Any) -> type[Any]:
    """The client of gateways that stands for a class of this package.

    Args:
        after: `Client` or `AsyncClient`, which has the same name there.
    """
    return _made(after)


@functools.cache
def _made(after: Any) -> type[Any]:
    remote = getattr(_package(), after.__name__)

    class RemoteClient(remote, after):  # type: ignore[misc, valid-type]
        is_remote = True

        def __init__(self, url: str | None = None, **options: Any) -> None:
            _hide(options)
            remote.__init__(self, **_arguments(url, **options))

    RemoteClient.__name__ = RemoteClient.__qualname__ = after.__name__
    RemoteClient.__doc__ = after.__doc__
    return RemoteClient


def _package() -> Any:
    try:
        import forebay_client
    except ImportError as error:
        if error.name not in ("forebay_client", "h11"):
            raise
        raise ConfigError(
            "a server is reached over HTTP by the package forebay-client, which is not installed;"
            " install it: pip install 'forebay[http]'"
        ) from None
    return forebay_client


def _hide(options: dict[str, Any]) -> None:
    """A token that was given is shown by no traceback from here on."""
    if isinstance(options.get("token"), str):
        options["token"] = _package().Hidden(options["token"])


def _arguments(
    url: str | None,
    *,
    app: str | None = None,
    start: bool = True,
    timeout: float = 30.0,
    on_start: Callable[[str], None] | None = None,
    token: Any = None,
    token_file: str | None = None,
    ca_file: str | None = None,
    proxy: str | None = None,
    plain_http: bool = False,
) -> dict[str, Any]:
    """The arguments of the other package's client; a server elsewhere is started by nobody here.

    Raises:
        ConfigError: an application is named too.
    """
    from forebay.executor.client.token import check_origin, token_for
    from forebay_client import Hidden

    found = remote_url(url, app)
    assert found is not None  # else another class was made
    if app is not None:
        raise ConfigError(f"url {found!r} and app {app!r} are both given; give one of them")
    if token is None:
        is_argument = url is not None
        said = token_for(found, token_file=token_file, is_argument=is_argument)
        token = Hidden(said or "")
        token = token if token.reveal() else None
    elif token_file is not None:
        raise ConfigError("token and token_file are both given; give one of them")
    elif url is None:
        check_origin(found, "an argument")
    return {
        "url": found,
        "token": token,
        "ca_file": ca_file,
        "proxy": proxy,
        "timeout": timeout,
        "plain_http": plain_http,
    }
