"""A token: whose it is, and what it may do.

Its text is `fb_` and 32 random bytes in base64url. Its SHA-256 alone is kept: whoever reads that
can call nothing with it. A hash that is slow on purpose would protect no better, since nobody
guesses 256 random bits, and every request would pay for it.
"""

from __future__ import annotations

import enum
import hashlib
import re
import secrets
from dataclasses import dataclass
from typing import Final

from forebay.errors import ConfigError

__all__ = ["LOCAL", "Role", "Token", "check_name", "digest_of", "new_text"]

PREFIX: Final = "fb_"
"""Of every token, so that a scanner finds one that was committed or logged."""

SECRET_BYTES: Final = 32

LOCAL: Final = "local"
"""The name of the token of the user who serves."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")


class Role(enum.IntEnum):
    """What a token may do; each role includes those below it."""

    READ = 1
    SUBMIT = 2
    ADMIN = 3

    @classmethod
    def named(cls, text: str) -> Role:
        """The role of a word: "read", "submit" or "admin".

        Raises:
            ConfigError: there is no such role.
        """
        for role in cls:
            if role.word == text:
                return role
        raise ConfigError(f"there is no role {text!r}; give read, submit or admin")

    @property
    def word(self) -> str:
        """As it is written in the file and on the command line."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Token:
    """What is known of a token; its text is known to its holder alone.

    Attributes:
        name: of its holder: the submitter of what it submits.
        role: what it may do.
        digest: SHA-256 of its text.
        made: when, in seconds since 1970.
        expires: from when on it is refused, in seconds since 1970; None: never.
        quota: the most unfinished requests of its holder; None: the server's setting.
    """

    name: str
    role: Role
    digest: bytes
    made: float
    expires: float | None = None
    quota: int | None = None

    def has_expired(self, now: float) -> bool:
        """Whether it is refused at `now`, in seconds since 1970."""
        return self.expires is not None and now >= self.expires


def new_text() -> str:
    """The text of a new token."""
    return PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def digest_of(text: bytes) -> bytes:
    """What is kept of a token's text."""
    return hashlib.sha256(text).digest()


def check_name(name: str) -> str:
    """A token's name, which requests, logs and metrics carry.

    Raises:
        ConfigError: it has other characters, or is longer than 63.
    """
    if _NAME.fullmatch(name) is None:
        raise ConfigError(
            f"the token's name {name!r} is invalid; write letters, digits and . _ @ -, a letter or"
            " a digit first, 63 at most"
        )
    if name == "cron":
        raise ConfigError("the token's name 'cron' is that of schedules; choose another one")
    return name
