"""The tokens of a server as its gateway finds them, with the file read again when it changes."""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from forebay.errors import ConfigError
from forebay.gateway.token import Role, Token, digest_of
from forebay.gateway.token_file import Stamp, read_tokens, stamp_of

__all__ = ["Role", "Token", "Tokens"]

PRESENTED_BYTES_MAX: Final = 256
"""Of what a caller presents; what is longer is not hashed."""

LOOK_S: Final = 1.0
"""The file is looked at so often at most, and for each token that is unknown."""

INDEX_BYTES: Final = 8
"""Of a digest, by which a token is found; the whole digest is then compared in constant time."""

_logger = logging.getLogger(__name__)


class Tokens:
    """The tokens of a file, which is read again when it has changed.

    What cannot be read any more (removed, damaged, open to others) changes nothing: the tokens of
    before stay in force, and the log says so once for each new reason.

    Args:
        path: of the file; there may be none yet.
        clock: seconds since 1970.
        timer: seconds that never go back.

    Raises:
        ConfigError: the file is there, and cannot be used; the message says why.

    Threads: one, that of the gateway's event loop. A method waits for a local file at most.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._clock = clock
        self._timer = timer
        self._index: dict[bytes, list[Token]] = {}
        self._by_name: dict[str, Token] = {}
        self._complaint: str | None = None
        self._stamp: Stamp | None = stamp_of(path)
        self._next_look = timer() + LOOK_S
        if self._stamp is not None:
            self._install(read_tokens(path))

    def find(self, presented: bytes) -> Token | None:
        """The token of this text, if it is in force."""
        self._look()
        if len(presented) > PRESENTED_BYTES_MAX:
            return None
        digest = digest_of(presented)
        token = self._of_digest(digest)
        if token is None and self._reload_if_changed():
            token = self._of_digest(digest)  # it was made a moment ago
        return None if token is None or token.has_expired(self._clock()) else token

    def _of_digest(self, digest: bytes) -> Token | None:
        for token in self._index.get(digest[:INDEX_BYTES], ()):
            if hmac.compare_digest(token.digest, digest):
                return token
        return None

    def named(self, name: str) -> Token | None:
        """The token of a name, if it is in force."""
        self._look()
        token = self._by_name.get(name)
        return None if token is None or token.has_expired(self._clock()) else token

    def is_in_force(self, token: Token) -> bool:
        """Whether a token that was found is still in the file, and has not expired."""
        return self.named(token.name) == token

    def reload(self) -> None:
        """Read the file now, as on SIGHUP."""
        self._next_look = self._timer() + LOOK_S
        self._stamp = stamp_of(self._path)
        try:
            self._install(read_tokens(self._path))
        except ConfigError as error:
            self._complain(str(error))
        else:
            self._complaint = None

    def _look(self) -> None:
        if self._timer() >= self._next_look:
            self._reload_if_changed()

    def _reload_if_changed(self) -> bool:
        self._next_look = self._timer() + LOOK_S
        has_changed = stamp_of(self._path) != self._stamp
        if has_changed:
            self.reload()
        return has_changed

    def _install(self, tokens: Iterable[Token]) -> None:
        index: dict[bytes, list[Token]] = {}
        by_name: dict[str, Token] = {}
        for token in tokens:
            index.setdefault(token.digest[:INDEX_BYTES], []).append(token)
            by_name[token.name] = token
        self._index, self._by_name = index, by_name

    def _complain(self, why: str) -> None:
        if why != self._complaint:
            self._complaint = why
            _logger.error("the tokens of before stay in force, since %s", why)
