"""A program: an unmodified LocalCluster over the scheme that is given, and work of known answer.

Its workers are processes under nannies; it says "right" once every answer was.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import dask.array as da
import dask.bag as db
import distributed
import numpy as np
from distributed import Client, LocalCluster

from forebay.dask import Security
from tests.dask.certificates import files

WORKERS = 2
SIDE = 1_200
NUMBERS = 5_000
KEYS = 31


def array_job() -> None:
    """A product and a transposition of blocks that live on different workers."""
    array = da.random.default_rng(0).random((SIDE, SIDE), chunks=(300, 400))
    got = (array @ array.T + array.rechunk((400, 300)).T).sum(axis=0).compute()
    whole = array.compute()
    assert np.allclose(got, (whole @ whole.T + whole.T).sum(axis=0))


def shuffle_job() -> None:
    """Every pair of partitions exchanges records."""
    pairs = db.from_sequence(range(NUMBERS), npartitions=8).map(lambda n: (n % KEYS, n))
    sums = pairs.groupby(lambda pair: pair[0]).starmap(
        lambda key, group: (key, sum(n for _, n in group))
    )
    assert dict(sums.compute()) == {key: sum(range(key, NUMBERS, KEYS)) for key in range(KEYS)}


def between_workers(client: Client) -> None:
    """A large object made in one worker is used in the other one, and comes back whole."""
    first, second = client.scheduler_info()["workers"]
    made = client.submit(np.arange, 3_000_000, workers=[first])
    used = client.submit(np.flip, made, workers=[second])
    assert np.array_equal(used.result(), np.arange(3_000_000)[::-1])


def secured(kind: str) -> dict[str, Any]:
    """A security of each kind that Dask takes; certificates are those of this folder."""
    paths = files(Path())
    security = {
        "ours": lambda: Security(require_encryption=True, **paths),
        "our temporary": Security.temporary,
        "dask's": lambda: distributed.Security(require_encryption=True, **paths),
        "dask's temporary": distributed.Security.temporary,
        "True": lambda: True,
    }[kind]()
    return {"security": security}


def main(scheme: str, security: str | None = None) -> None:
    """Do all of it."""
    options = secured(security) if security else {}
    with (
        LocalCluster(
            n_workers=WORKERS,
            threads_per_worker=1,
            processes=True,
            protocol=scheme,
            dashboard_address=None,
            **options,
        ) as cluster,
        Client(cluster) as client,
    ):
        workers = client.scheduler_info()["workers"]
        assert len(workers) == WORKERS
        assert all(
            address.startswith(f"{scheme}://") for address in (*workers, cluster.scheduler_address)
        )
        assert all(worker["nanny"].startswith(f"{scheme}://") for worker in workers.values())
        array_job()
        shuffle_job()
        between_workers(client)
    sys.stdout.write("right\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
