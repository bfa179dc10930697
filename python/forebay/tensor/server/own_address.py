"""The default address of a tensor server: a Unix socket that only this user can reach."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import time
from pathlib import Path
from typing import Final

from forebay._runtime_directory import make_private, runtime_root, temporary_root

__all__ = ["own_url"]

PATH_BYTES_MAX: Final = 107
"""Of a socket's path: `sun_path` in unix(7), without its final NUL."""

STALE_S: Final = 60.0
"""A free lock that is older was left by a killed server; a younger one may be about to be taken."""


def own_url() -> str:
    """The URL of a new socket in this user's runtime directory, with `{shard}` for its number.

    What killed servers left there is removed; no name comes twice.

    Raises:
        ConfigError: the directory is not this user's alone.
    """
    name = f"tensors-{secrets.token_hex(4)}-{{shard}}.sock"
    root = runtime_root()
    if len(os.fsencode(root / name)) > PATH_BYTES_MAX:
        root = temporary_root()
    make_private(root)
    for lock in root.glob("tensors-*.sock.lock"):
        _remove_stale(lock)
    return f"unix://{root / name}"


def _remove_stale(lock: Path) -> None:
    with contextlib.suppress(OSError), open(lock) as file:
        if time.time() - os.fstat(file.fileno()).st_mtime < STALE_S:
            return
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lock.with_suffix("").unlink(missing_ok=True)
        lock.unlink()
