"""PostgreSQL for the length of a contestant's round, with its defaults and nobody else in it."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.executor.program import folder_on_disk, running

DEBIAN = Path("/usr/lib/postgresql")
ROLE = "bench"


def _program(name: str) -> Path:
    """The newest one that is installed."""
    found = sorted(DEBIAN.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    elsewhere = shutil.which(name)
    if not found and elsewhere is None:
        raise FileNotFoundError(f"{name} is not installed: apt-get install postgresql")
    return found[-1] if found else Path(str(elsewhere))


def _ordinary_user() -> pwd.struct_passwd | None:
    """Who it runs as where we are root, as which it refuses to run."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


@contextmanager
def running_postgres() -> Iterator[str]:
    """A server of its own on the disk, over a Unix socket; what it says is the connection text."""
    owner = _ordinary_user()
    user = None if owner is None else owner.pw_uid
    with folder_on_disk() as folder:
        if owner is not None:
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        data = folder / "data"
        made = (_program("initdb"), "--auth=trust", f"--username={ROLE}", "-D", data)
        subprocess.run(
            made, user=user, cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=60
        )
        server = (_program("postgres"), "-D", data, "-k", folder, "-c", "listen_addresses=")

        def accepts() -> bool:
            asked = (_program("pg_isready"), "--quiet", "-h", folder)
            return subprocess.run(asked, check=False).returncode == 0

        with running(server, ready=accepts, user=user):
            yield f"host={folder} user={ROLE} dbname=postgres"
