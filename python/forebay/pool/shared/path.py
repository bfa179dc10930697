"""Where the shared pool of this user is found."""

from __future__ import annotations

import os
from pathlib import Path

from forebay._runtime_directory import runtime_root
from forebay._working_directory import working_directory
from forebay.errors import ConfigError

VARIABLE = "FOREBAY_POOL_PATH"
"""Names another socket than the default one, for the lender and for programs."""


def shared_path(path: str | os.PathLike[str] | None = None) -> Path:
    """The socket of the shared pool: `path`, `FOREBAY_POOL_PATH`, or the usual one of this user.

    The usual one is `forebay/pool.sock` in `$XDG_RUNTIME_DIR`, or in a directory under /tmp that
    has the user's id in its name where there is no such variable.

    Raises:
        ConfigError: the path is empty, or relative to a current directory that was removed.
    """
    named = os.environ.get(VARIABLE) if path is None else os.fspath(path)
    if named == "":
        raise ConfigError(f"the path of the shared pool is empty; give one, or unset {VARIABLE}")
    if named is not None:
        here = "" if os.path.isabs(named) else working_directory()
        return Path(os.path.normpath(os.path.join(here, named)))
    return runtime_root() / "pool.sock"
