"""wrk, a load generator in C: keep-alive connections that each post and wait for the answer.

One thread of it: on two cores a second one would take from the servers.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from benchmarks import processes
from benchmarks.gateway.address import Address
from benchmarks.stopwatch import Figures

SCRIPT = Path(__file__).with_name("post.lua")
CONNECTIONS = 64
WARM_UP_S = 1


def post(address: Address, path: str, *, seconds: int) -> Figures:
    """Post over 64 connections, then over one.

    Returns:
        For `64 connections/` and `1 connection/`: rate per second, p50 and p99 in microseconds,
        CPU in microseconds an answer, of this process and all below it; and memory of them all.

    Raises:
        FileNotFoundError: wrk is not installed.
        ValueError: an answer was no success, so that the figures would mean nothing.
    """
    _run(address, path, CONNECTIONS, WARM_UP_S)
    many = _run(address, path, CONNECTIONS, seconds)
    alone = _run(address, path, 1, max(1, seconds // 2))
    memory = {"memory_mb": processes.memory_bytes(processes.tree()) / 1e6}
    return {
        **{f"{CONNECTIONS} connections/{name}": value for name, value in (many | memory).items()},
        **{f"1 connection/{name}": value for name, value in alone.items()},
    }


def _run(address: Address, path: str, connections: int, seconds: int) -> Figures:
    wrk = shutil.which("wrk")
    if wrk is None:
        raise FileNotFoundError("wrk is not installed: apt-get install wrk")
    headers = [word for it in address.headers.items() for word in ("-H", ": ".join(it))]
    command = [
        *(wrk, "-t", "1", "-c", str(connections), "-d", f"{seconds}s", "--timeout", "30s"),
        *("-s", str(SCRIPT), *headers, f"http://{address.text}{path}"),
    ]
    before = processes.tree_cpu_ns()
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    cpu = processes.tree_cpu_ns() - before
    (line,) = [line for line in told.splitlines() if line.startswith("FIGURES ")]
    requests, took_us, failed, p50, p99 = map(float, line.split()[1:])
    if failed or not requests:
        raise ValueError(f"{failed:.0f} of {requests:.0f} requests failed:\n{told}")
    return {
        "rate": requests * 1e6 / took_us,
        "p50": p50,
        "p99": p99,
        "cpu": cpu / requests / 1_000,
    }
