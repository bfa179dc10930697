"""Ray for the length of a contestant's round."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STORE_BYTES = 200 << 20


@contextmanager
def running_ray(cpus: int | None = None) -> Iterator[Any]:
    """Ray on this machine, with a token of its own; its ports listen on every address.

    Args:
        cpus: so many tasks run at once; default: as many as the machine has cores.
    """
    folder = tempfile.mkdtemp(prefix="ray-bench-")
    token = os.path.join(folder, "token")
    with open(os.open(token, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
        file.write(secrets.token_hex(32))
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=token, RAY_USAGE_STATS_ENABLED="0")
    if shutil.disk_usage("/dev/shm").free < STORE_BYTES:
        raise OSError(f"/dev/shm has less than {STORE_BYTES >> 20} MB free for Ray's store")
    import ray

    ray.init(
        address="local",
        num_cpus=cpus or os.cpu_count(),
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=STORE_BYTES,
        _temp_dir=folder,
    )
    try:
        yield ray
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
