"""Threads that share one ring with a completion thread, in C: the shape that ours does not have."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.blockio.file import prepare
from benchmarks.blockio.meter import CPU, RATE, US_PER_S
from benchmarks.blockio.stores import told
from benchmarks.stopwatch import Figures

SOURCE = Path(__file__).with_suffix(".c")


def shared_ring(store: str, clients: int, reads: int, seconds: float, warm_up_s: float) -> Figures:
    """Threads that each have one batch of so many reads in flight, through the page cache."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise FileNotFoundError("no C compiler: apt-get install gcc")
    path = told().path(store)
    prepare(path, store)
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as folder:
        program = str(Path(folder) / "shared_ring")
        flags = ("-O2", "-Wall", "-Wextra", "-Werror", "-pthread")
        subprocess.run([compiler, *flags, "-o", program, str(SOURCE)], check=True)
        numbers = map(str, (clients, reads, warm_up_s, seconds))
        ended = subprocess.run(
            [program, str(path), *numbers], stdout=subprocess.PIPE, text=True, check=True
        )
    count, took, cpu_s = map(float, ended.stdout.split())
    return {RATE: count / took, CPU: cpu_s / count * US_PER_S}
