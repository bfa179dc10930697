"""What the pool promises in milliseconds: `python -m benchmarks.pool.bounds`.

Who is left of a killed client's processes after 50 ms, and how long a warm acquire takes at worst
while another service starts. Exit status 1 where a bound is broken; the figures count on a quiet
machine.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict
from pathlib import Path

from benchmarks.bounds import Bound, broken, table
from benchmarks.runner import ROOT

CLIENT = ROOT / "tests/pool/faults/client.py"
"""Leases three services with a child each: one as usual, one ignores SIGTERM, one is stopped."""
TRIALS, GONE_MS = 50, 50.0
START_S, LEASES, LEASE_MS = 5.0, 2_000, 1.0


def survivors() -> int:
    """How many of the processes below a client are there 50 ms after its SIGKILL."""
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as folder:
        client = subprocess.Popen(
            [sys.executable, str(CLIENT), "wait_for_the_end"],
            env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": folder},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert client.stdin is not None
        assert client.stdout is not None
        told = json.loads(client.stdout.readline())
        owned = [told["keeper"], told["template"], *told["services"], *told["grandchildren"]]
        client.stdin.write("go on\n")
        client.stdin.flush()
        pidfds = {os.pidfd_open(pid) for pid in owned}
        client.kill()
        left = _left(set(pidfds), time.monotonic() + GONE_MS / 1e3)
        for pidfd in pidfds:
            select.select([pidfd], [], [])
            os.close(pidfd)
        client.communicate()
        return left


def _left(pidfds: set[int], deadline: float) -> int:
    while pidfds and (rest := deadline - time.monotonic()) > 0:
        ended, _, _ = select.select(list(pidfds), [], [], rest)
        pidfds.difference_update(ended)
    return len(pidfds)


def warm_beside_cold() -> float:
    """Milliseconds of the longest of many warm leases while another service starts."""
    import forebay
    from benchmarks.services import Echo, Slow

    with forebay.ServicePool(max_size=2) as pool:
        with pool.acquire(Echo) as echo:
            echo.echo(b"warm")

        def start() -> None:
            with pool.acquire(Slow.spec(START_S)):
                pass

        cold = threading.Thread(target=start)
        cold.start()
        took = []
        for _ in range(LEASES):
            began = time.perf_counter()
            with pool.acquire(Echo):
                pass
            took.append((time.perf_counter() - began) * 1e3)
        if not cold.is_alive():
            raise ValueError("the cold start was over before the leases were")
        cold.join()
    return max(took)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the bounds there as well")
    options = parser.parse_args()
    left = sum(survivors() for _ in range(TRIALS))
    bounds = [
        Bound(f"alive {GONE_MS:g} ms after SIGKILL of their client, {TRIALS} times 8", left, 0, ""),
        Bound(
            f"a warm lease beside a start of {START_S:g} s, worst of {LEASES:,}",
            *(warm_beside_cold(), LEASE_MS, "ms"),
        ),
    ]
    print(table(bounds))
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(bound) for bound in bounds], indent=1))
    return broken(bounds)


if __name__ == "__main__":
    sys.exit(main())
