"""The file of tokens, read whole and replaced in one step under a lock.

{"schema": 1, "tokens": [{"name": "ann", "role": "submit", "sha256": "9f86d0...",
 "made_at": "2026-01-31T12:00:00Z", "expires_at": null, "quota": null}]}
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from forebay._private_file import alone, read_private, write_private
from forebay.errors import ConfigError
from forebay.gateway.token import Role, Token, check_name, digest_of, new_text

__all__ = ["Stamp", "add_token", "read_tokens", "remove_token", "rfc3339", "stamp_of"]


SCHEMA: Final = 1
FILE_BYTES_MAX: Final = 4 << 20
TOKENS_MAX: Final = 10_000
QUOTA_MAX: Final = 2**32 - 1

Stamp = tuple[int, int, int, int]
"""What tells one content of a file from another without reading it."""


def stamp_of(path: Path) -> Stamp | None:
    """The stamp of a file; None: there is none."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def read_tokens(path: Path) -> list[Token]:
    """The tokens of a file.

    Raises:
        ConfigError: it is missing, damaged, of a later version, or others may read or write it.
    """
    try:
        content = read_private(path, FILE_BYTES_MAX)
    except FileNotFoundError:
        raise ConfigError(f"{path} was removed; make it again with: forebay token add") from None
    try:
        told = json.loads(content)
        version = told["schema"]
        tokens = [_token(one) for one in told["tokens"]] if version == SCHEMA else []
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"{path} is damaged ({error}); restore it, or remove it and make the tokens again"
        ) from error
    if version != SCHEMA:
        raise ConfigError(f"{path} is of version {version!r}, and this Forebay reads {SCHEMA}")
    return tokens


def add_token(
    path: Path,
    name: str,
    role: Role,
    *,
    expires_s: float | None = None,
    quota: int | None = None,
) -> tuple[Token, str]:
    """Make a token; returns it with its text, which is kept nowhere.

    Args:
        path: of the file, which is made with its directory where it is missing.
        name: of its holder.
        role: what it may do.
        expires_s: seconds from now.
        quota: the most unfinished requests of its holder.

    Raises:
        ConfigError: the name is invalid or taken, or the file cannot be used.
    """
    check_name(name)
    if quota is not None and not 1 <= quota <= QUOTA_MAX:
        raise ConfigError(f"the quota is {quota}; give 1 to {QUOTA_MAX}, or leave it out")
    if expires_s is not None and expires_s <= 0:
        raise ConfigError(f"the token would expire {-expires_s:g} s ago; give a time such as 90d")
    text, now = new_text(), time.time()
    token = Token(
        name=name,
        role=role,
        digest=digest_of(text.encode()),
        made=now,
        expires=None if expires_s is None else now + expires_s,
        quota=quota,
    )
    with alone(path):
        tokens = _present(path)
        if any(one.name == name for one in tokens):
            raise ConfigError(
                f"there is a token {name!r} already; choose another name, or remove it with: "
                f"forebay token rm {name}"
            )
        if len(tokens) >= TOKENS_MAX:
            raise ConfigError(f"{path} has {TOKENS_MAX} tokens, the most; remove some")
        _write(path, [*tokens, token])
    return token, text


def remove_token(path: Path, name: str) -> bool:
    """Remove a token; False: there is none of that name.

    Raises:
        ConfigError: the file cannot be used.
    """
    if stamp_of(path) is None:
        return False
    with alone(path):
        tokens = _present(path)
        kept = [one for one in tokens if one.name != name]
        if len(kept) == len(tokens):
            return False
        _write(path, kept)
    return True


def rfc3339(at: float | None) -> str | None:
    """A time as the file and listings have it, in UTC with whole seconds; None stays None."""
    if at is None:
        return None
    return datetime.fromtimestamp(int(at), UTC).isoformat().replace("+00:00", "Z")


def _present(path: Path) -> list[Token]:
    return [] if stamp_of(path) is None else read_tokens(path)


def _token(told: dict[str, Any]) -> Token:
    digest = bytes.fromhex(told["sha256"])
    if len(digest) != 32:
        raise ValueError(f"the digest of {told['name']} has {len(digest)} bytes")
    quota = told.get("quota")
    if quota is not None and not (type(quota) is int and 1 <= quota <= QUOTA_MAX):
        raise ValueError(f"the quota of {told['name']} is {quota!r}")
    return Token(
        name=check_name(told["name"]),
        role=Role.named(told["role"]),
        digest=digest,
        made=datetime.fromisoformat(told["made_at"]).timestamp(),
        expires=_seconds(told["expires_at"]),
        quota=quota,
    )


def _seconds(text: str | None) -> float | None:
    return None if text is None else datetime.fromisoformat(text).timestamp()


def _write(path: Path, tokens: Iterable[Token]) -> None:
    listed = [
        {
            "name": one.name,
            "role": one.role.word,
            "sha256": one.digest.hex(),
            "made_at": rfc3339(one.made),
            "expires_at": rfc3339(one.expires),
            "quota": one.quota,
        }
        for one in tokens
    ]
    text = json.dumps({"schema": SCHEMA, "tokens": listed}, indent=1)
    write_private(path, f"{text}\n".encode())
