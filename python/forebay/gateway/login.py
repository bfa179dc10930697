"""Browsers: a link that works once and for a short time, and the session that it opens.

A link is a file in the state directory, named by the SHA-256 of its key. Whoever removes the file
has used the link, so that it works once also where several processes serve, and a command of this
user makes one without asking the server.
A session is kept in the memory of the gateway. It has the rights of the token that its link names,
and ends with it.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from forebay._private_file import read_private, write_private
from forebay._runtime_directory import make_private
from forebay.errors import ConfigError
from forebay.gateway.token import Token, digest_of
from forebay.gateway.tokens import Tokens

__all__ = ["Sessions", "new_link"]

LINK_S: Final = 300.0
"""A link can be used for so long."""

LINKS_MAX: Final = 100
"""Unused links: more mean a loop that makes them."""

LINK_BYTES_MAX: Final = 1000

SESSION_S: Final = 12 * 3600.0
"""A session lasts so long: a working day."""

SESSIONS_MAX: Final = 1000
"""At the limit the oldest one ends."""

SESSIONS_OF_TOKEN_MAX: Final = 50
"""Of one token's name, so that nobody ends the sessions of others by logging in often."""

DIRECTORY: Final = "login"
"""Of the links, in the state directory."""

_KEY: Final = re.compile(r"[A-Za-z0-9_-]{43}")


def new_link(state: Path, address: str, name: str) -> str:
    """A link that opens a session with the rights of a token.

    Args:
        state: the state directory of the server.
        address: of the gateway, such as "http://127.0.0.1:8000".
        name: of the token.

    Raises:
        ConfigError: the directory cannot be used, or has too many unused links.
    """
    directory = state / DIRECTORY
    make_private(directory)
    now = time.time()
    unused = [path for path in directory.iterdir() if not _is_over(path, now)]
    if len(unused) >= LINKS_MAX:
        raise ConfigError(
            f"{LINKS_MAX} links were made and not used; wait {LINK_S:g} s, or remove {directory}"
        )
    key = secrets.token_urlsafe(32)
    told = json.dumps({"schema": 1, "name": name, "until": now + LINK_S})
    write_private(directory / _file_of(key), told.encode())
    return f"{address.rstrip('/')}/login?key={key}"


def _file_of(key: str) -> str:
    return digest_of(key.encode()).hex()


def _is_over(path: Path, now: float) -> bool:
    """Whether a link's time is over; it is removed then."""
    try:
        over = now - path.stat().st_mtime > LINK_S
        if over:
            path.unlink()
    except OSError:
        return True  # used meanwhile
    return over


@dataclass(frozen=True, slots=True)
class _Session:
    token: Token
    until: float


class Sessions:
    """The sessions of browsers.

    Args:
        state: the state directory of the server.
        tokens: those whose rights sessions have.
        clock: seconds since 1970.

    Threads: one, that of the gateway's event loop.
    """

    def __init__(
        self, state: Path, tokens: Tokens, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._directory = state / DIRECTORY
        self._tokens = tokens
        self._clock = clock
        self._sessions: dict[bytes, _Session] = {}

    def open(self, key: str) -> str | None:
        """Use a link: the text of the session that it opens; None: it is used, over or unknown."""
        token = self._use(key)
        return None if token is None else self.begin(token)

    def begin(self, token: Token) -> str:
        """The text of a new session with the rights of a token that is in force."""
        self._make_room(token.name)
        text = secrets.token_urlsafe(32)
        self._sessions[digest_of(text.encode())] = _Session(token, self._clock() + SESSION_S)
        return text

    def find(self, text: bytes) -> Token | None:
        """The token whose rights a session has; None: it has ended, or was none."""
        if len(text) > LINK_BYTES_MAX:
            return None
        digest = digest_of(text)
        session = self._sessions.get(digest)
        if session is None:
            return None
        if self._clock() >= session.until or not self._tokens.is_in_force(session.token):
            del self._sessions[digest]
            return None
        return session.token

    def end(self, text: bytes) -> None:
        """End a session. Idempotent; of what is none, nothing happens."""
        self._sessions.pop(digest_of(text), None)

    def _make_room(self, name: str) -> None:
        """End the oldest session of that name, or of all, where there are too many."""
        own = [it for it, session in self._sessions.items() if session.token.name == name]
        if len(own) >= SESSIONS_OF_TOKEN_MAX:
            del self._sessions[own[0]]
        elif len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]

    def _use(self, key: str) -> Token | None:
        if _KEY.fullmatch(key) is None:
            return None
        path = self._directory / _file_of(key)
        try:
            told = json.loads(read_private(path, LINK_BYTES_MAX))
            path.unlink()  # the one who succeeds has used it
            until, name = float(told["until"]), told["name"]
        except (OSError, ConfigError, ValueError, KeyError, TypeError):
            return None
        return self._tokens.named(name) if self._clock() < until else None
