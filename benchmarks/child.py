"""One contestant's round in a process of its own; its figures go back on a pipe of their own.

`python -P child.py DESCRIPTOR MODULE:FUNCTION OPTIONS` runs here, in whichever environment the peer
needs, so this module and what it imports need the standard library alone.
It is started as a script because multiprocessing can preload that into its forkserver, and it
imports little because multiprocessing imports it again into each process that it spawns.
"""

from __future__ import annotations

import os
import sys

# Packages whose versions are told, where the environment of the contestant has them.
TOLD = (
    "aiofiles",
    "caio",
    "celery",
    "dbos",
    "distributed",
    "fastapi",
    "forebay",
    "grpcio",
    "gymnasium",
    "httptools",
    "huey",
    "loky",
    "mooncake-transfer-engine-non-cuda",
    "nixl-cu12",
    "numpy",
    "procrastinate",
    "psycopg",
    "pyzmq",
    "ray",
    "redis",
    "rpyc",
    "scikit-learn",
    "scipy",
    "uvicorn",
    "uvloop",
    "xoscar",
)


def versions() -> dict[str, str]:
    """Versions of everything that takes part in this process."""
    import importlib.metadata

    found = {"python": sys.version.split()[0]}
    for package in TOLD:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def main(arguments: list[str]) -> None:
    """Run one round and report it."""
    import importlib
    import json

    descriptor, target, options = arguments
    pipe = int(descriptor)
    os.set_inheritable(pipe, False)  # a service that outlives this must not keep it open
    module, _, name = target.partition(":")
    function = getattr(importlib.import_module(module), name)
    figures = function(**json.loads(options))
    report = {"figures": figures, "versions": versions()}
    with open(pipe, "w", encoding="utf-8") as stream:
        json.dump(report, stream)


if __name__ == "__main__":
    main(sys.argv[1:])
