"""A program: work of known answer on a cluster, then what its nodes speak with each other, as JSON.

Without preloads in its configuration, a client has Dask's own comms.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
from distributed import Client
from distributed.comm import tcp


def spoken(comm: Any) -> str:
    """What a comm speaks."""
    return "stock" if isinstance(comm, tcp.TCP) else "ours"


def of_scheduler(dask_scheduler: Any) -> dict[str, str]:
    """What a scheduler speaks with its peers."""
    workers = {
        dask_scheduler.workers[address].name: spoken(stream.comm)
        for address, stream in dask_scheduler.stream_comms.items()
    }
    [client] = dask_scheduler.client_comms.values()
    return workers | {"client": spoken(client.comm)}


def of_pool(dask_worker: Any, peer: str) -> list[str]:
    """What a worker speaks with another one that it has fetched from."""
    pool = dask_worker.rpc
    comms = [*pool.available.get(peer, ()), *pool.occupied.get(peer, ())]
    return sorted({spoken(comm) for comm in comms})


def main(address: str, workers: int) -> None:
    """Do it."""
    with Client(address, timeout=30) as client:
        client.wait_for_workers(workers, timeout=30)
        names = {each["name"]: where for where, each in client.scheduler_info()["workers"].items()}
        fetched: dict[str, list[str]] = {}
        for first, of_first in names.items():
            for second, of_second in names.items():
                if first == second:
                    continue
                made = client.submit(np.arange, 300_000, workers=[of_first], pure=False)
                used = client.submit(np.flip, made, workers=[of_second], pure=False)
                assert np.array_equal(used.result(), np.arange(300_000)[::-1])
                [pool] = client.run(of_pool, peer=of_first, workers=[of_second]).values()
                fetched[f"{second} of {first}"] = pool
        blocks = client.scatter([np.full(1_000_000, number) for number in range(4)])
        sums = client.gather(client.map(np.sum, blocks), direct=False)
        assert sums == [1_000_000 * number for number in range(4)]
        again = client.gather(blocks, direct=False)
        assert all(np.all(block == number) for number, block in enumerate(again))
        sys.stdout.write(json.dumps(client.run_on_scheduler(of_scheduler) | fetched))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
