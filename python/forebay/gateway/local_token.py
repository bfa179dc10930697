"""The token of the user who serves, which commands of that user find by themselves."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from forebay._private_file import alone, read_private, write_private
from forebay.errors import ConfigError
from forebay.executor._internal import LOCAL_TOKEN, TOKENS
from forebay.gateway.token import LOCAL, Role, digest_of
from forebay.gateway.token_file import (
    FILE_BYTES_MAX,
    add_token,
    read_tokens,
    remove_token,
    stamp_of,
)

__all__ = ["offer_local"]


def offer_local(state: Path, addresses: Iterable[str]) -> str:
    """Make the token `local` where there is none, and write it down with the server's addresses.

    Its file has the token in its first line, as any token file, and an address in each other one.

    Args:
        state: the state directory of the server.
        addresses: as a client writes them, such as "http://127.0.0.1:8000".

    Returns:
        The text of the token.

    Raises:
        ConfigError: the file of tokens or the directory cannot be used.
    """
    path = state / LOCAL_TOKEN
    text = _known(state, path)
    if text is None:
        remove_token(state / TOKENS, LOCAL)  # whoever still has its text is to have it no longer
        _, text = add_token(state / TOKENS, LOCAL, Role.ADMIN)
    lines = (text, *(one.rstrip("/") for one in addresses))
    content = "".join(f"{line}\n" for line in lines).encode()
    with alone(path):
        if _content(path) != content:  # else a server could not be started again on a full disk
            write_private(path, content)
    return text


def _content(path: Path) -> bytes | None:
    """What is in the file; None: nothing that may be left there."""
    try:
        return read_private(path, FILE_BYTES_MAX)
    except (FileNotFoundError, ConfigError):
        return None


def _known(state: Path, path: Path) -> str | None:
    """The text of the token that is there, if both files know it."""
    content = _content(path)
    if content is None:
        return None  # one that others could read is made anew
    text = content.partition(b"\n")[0].strip()
    tokens = read_tokens(state / TOKENS) if stamp_of(state / TOKENS) else []
    known = any(one.name == LOCAL and one.digest == digest_of(text) for one in tokens)
    return text.decode("ascii", "replace") if known else None
