"""From the arguments of a client to its calls."""

from __future__ import annotations

import os

from forebay_client.calls import Calls
from forebay_client.http.hidden import Hidden, find_token
from forebay_client.http.route import find_route
from forebay_client.http.session import Session

__all__ = ["Token", "hidden", "open_session"]

Token = str | Hidden | None
"""The text of a token, or one that is hidden already."""


def hidden(token: Token) -> Hidden | None:
    """A token whose text no traceback shows."""
    return Hidden(token) if isinstance(token, str) else token


def open_session(
    url: str,
    token: Hidden | None,
    *,
    token_file: str | os.PathLike[str] | None,
    ca_file: str | os.PathLike[str] | None,
    proxy: str | None,
    timeout: float,
    plain_http: bool,
) -> tuple[Session, Calls]:
    """The session of a client and its calls; nothing is connected yet.

    Raises:
        ConfigError: an argument is wrong.
    """
    authorization = find_token(token, token_file)
    route = find_route(
        url,
        ca_file=ca_file,
        proxy=proxy,
        has_token=authorization is not None,
        plain_http=plain_http,
    )
    session = Session(route, authorization)
    return session, Calls(session, timeout)
