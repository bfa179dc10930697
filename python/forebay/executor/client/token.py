"""The token that a client shows to a server that is reached over HTTP."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from forebay._private_file import read_private
from forebay.configuration import Configuration, find_configuration
from forebay.errors import ConfigError
from forebay.executor.wire.paths import LOCAL_TOKEN, running

__all__ = ["check_origin", "token_for"]

TOKEN: Final = re.compile(r"fb_[A-Za-z0-9_-]{43}")
"""What every token looks like: nothing else in a file is sent to anyone."""

FILE_BYTES_MAX: Final = 4096


def token_for(
    url: str,
    *,
    token: str | None = None,
    token_file: str | None = None,
    is_argument: bool = False,
    configuration: Configuration | None = None,
) -> str | None:
    """The token for a server, or None where nothing says one.

    It is `token`, else the first line of `token_file`, else that of the settings of these names,
    else that of a server of this user which serves at this address now.

    Args:
        url: of the server, `https://` or `http://`.
        token: as an argument.
        token_file: as an argument.
        is_argument: whether the address is one too, and no setting.
        configuration: default: that of this process.

    Raises:
        ConfigError: a token or its file is not one; or the address comes from a file of settings
            that was found in a directory, whose author would get a token that was never meant for
            that server.
    """
    given = {"token": token, "token_file": token_file}
    configuration = configuration or find_configuration(given)
    for name, text in given.items():
        if text is not None:
            if not is_argument:
                check_origin(url, "an argument", configuration)
            return _checked(text, name) if name == "token" else _from_file(Path(text))
    settings = configuration.settings
    named = settings["token"] if settings["token"].value else settings["token_file"]
    if not named.value:
        return _of_own_server(url)
    if not is_argument:
        check_origin(url, named.origin, configuration)
    if named.name == "token":
        return _checked(named.value, named.origin)
    return _from_file(Path(named.value).expanduser())


def check_origin(url: str, origin: str, configuration: Configuration | None = None) -> None:
    """Check that a setting's address for a server may have a token.

    Args:
        url: the address.
        origin: of the token, for the message.
        configuration: default: that of this process.

    Raises:
        ConfigError: as of `token_for`.
    """
    configuration = configuration or find_configuration()
    named = configuration.settings["url"]
    is_found = configuration.found is not None and named.origin == str(configuration.found)
    if is_found and named.value.rstrip("/") == url.rstrip("/"):
        raise ConfigError(
            f"the address {url} comes from {named.origin} and the token from {origin}; if that "
            "server may have the token, give the address by --url or FOREBAY_URL too"
        )


def _from_file(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            content = file.read(FILE_BYTES_MAX)
    except OSError as error:
        raise ConfigError(f"the token file {path} cannot be read: {error.strerror}") from error
    return _checked(_first_line(content), f"the token file {path}")


def _first_line(content: bytes) -> str:
    return content.decode("utf-8", "replace").partition("\n")[0].strip()


def _checked(text: str, origin: str) -> str:
    """A token; the message does not show what it was instead."""
    if TOKEN.fullmatch(text.strip()) is None:
        raise ConfigError(
            f"{origin} is no token: that is fb_ and 43 characters; make one with: forebay token add"
        )
    return text.strip()


def _of_own_server(url: str) -> str | None:
    """The token `local` of a server of this user that serves at an address now.

    The address alone does not do: another user may listen at a port that a server of this user has
    left. A server that runs has its address to itself.
    """
    for server in running():
        try:
            lines = read_private(Path(server.state) / LOCAL_TOKEN, FILE_BYTES_MAX).splitlines()
        except (FileNotFoundError, ConfigError):
            continue
        if len(lines) > 1 and url.rstrip("/").encode() in lines[1:]:
            return _checked(lines[0].decode("utf-8", "replace"), str(server.state))
    return None
