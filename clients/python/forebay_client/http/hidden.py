"""Tokens and passwords: texts that no repr, no log and no traceback shows.

A frame whose variables are printed with a traceback holds the object, and never its text.
"""

from __future__ import annotations

import os
import re
from typing import Final, NoReturn

from forebay_client.errors import ConfigError

__all__ = ["Hidden", "Payload", "find_token"]

TOKEN_BYTES_MAX: Final = 4096
_TOKEN: Final = re.compile(r"fb_[A-Za-z0-9_-]{43}")
"""What every token looks like: nothing else in a file is sent to anyone."""


class Hidden:
    """A text that is shown as `<hidden>`: `Client(url, Hidden(token))`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text; put it into no variable."""
        return self._text

    def __repr__(self) -> str:
        return "<hidden>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a hidden text is not pickled; make the client anew where it is needed")


class Payload:
    """Bytes to send whose head may hold a secret; it is shown by its length."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        self._data = data

    @classmethod
    def authorized(cls, head: bytes, field: bytes, secret: Hidden | None) -> Payload:
        """The head of a request with one more field behind its first line."""
        if secret is None:
            return cls(head)
        line, end, rest = head.partition(b"\r\n")
        return cls(b"".join([line, end, field, b": ", secret.reveal().encode(), b"\r\n", rest]))

    def reveal(self) -> bytes:
        """The bytes; put them into no variable."""
        return self._data

    def __repr__(self) -> str:
        return f"<{len(self._data)} bytes>"


def find_token(token: Hidden | None, token_file: str | os.PathLike[str] | None) -> Hidden | None:
    """The token that was given, or the one that a file holds; as the value of `Authorization`.

    Raises:
        ConfigError: both are given; or the file cannot be read, or holds none.
    """
    if token is not None and token_file is not None:
        raise ConfigError("token and token_file are both given; give one of them")
    if token_file is not None:
        token = _read(token_file)
    if token is None:
        return None
    if not _TOKEN.fullmatch(token.reveal()):
        where = "token" if token_file is None else f"token_file {os.fspath(token_file)!r}"
        raise ConfigError(
            f"{where} is no token: that is fb_ and 43 characters; make one with: forebay token add"
        )
    return Hidden(f"Bearer {token.reveal()}")


def _read(path: str | os.PathLike[str]) -> Hidden:
    try:
        with open(path, "rb") as file:
            return Hidden(
                file.read(TOKEN_BYTES_MAX).decode("ascii", "replace").split("\n")[0].strip()
            )
    except OSError as error:
        raise ConfigError(
            f"token_file {os.fspath(path)!r} cannot be read: {error.strerror or error}"
        ) from None
