"""A program: how much memory a gather through the scheduler of this process takes at its peak.

It prints the bytes that the process grew by, at most, while it gathered; the scheduler and the
client are in it, a worker is in another one.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import numpy as np
from distributed import Client, LocalCluster

COUNT = 16
BYTES = 32_000_000
"""Of one block; so short that the C library's allocator keeps freed ones for the next."""


def resident(field: str) -> int:
    """Bytes of this process: VmRSS now, VmHWM at most since `forget_peak`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) << 10
    raise ValueError(field)


def forget_peak() -> None:
    """Begin to measure VmHWM again."""
    Path("/proc/self/clear_refs").write_text("5")


def main(scheme: str) -> None:
    """Gather once for what stays, then measure."""
    logging.getLogger("distributed").setLevel(logging.ERROR)
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            host="127.0.0.1",
            protocol=scheme,
            dashboard_address=None,
            memory_limit=0,
        ) as cluster,
        Client(cluster) as client,
    ):
        blocks = client.map(np.full, [BYTES // 8] * COUNT, range(COUNT), pure=False)
        client.gather(blocks[:1], direct=False)
        forget_peak()
        before = resident("VmRSS")
        got = client.gather(blocks, direct=False)
        grown = resident("VmHWM") - before
        assert all(block[-1] == number for number, block in enumerate(got))
        sys.stdout.write(f"{grown}\n")


if __name__ == "__main__":
    main(sys.argv[1])
