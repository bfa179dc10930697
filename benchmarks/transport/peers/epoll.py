"""The ceiling: the same echo in C, by epoll on both sides; sleeping at once, or looking before."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks import look
from benchmarks.stopwatch import Figures, summary
from benchmarks.transport.message import Shape
from benchmarks.transport.round import US, shapes

SOURCE = Path(__file__).with_suffix(".c")


def looking_echoes(*, wanted: list[str], seconds: float, warm_up_s: float) -> Figures:
    """The same, each end looking as long as ours does before it sleeps."""
    return echoes(wanted=wanted, seconds=seconds, warm_up_s=warm_up_s, spin_us=look.spin_us())


def echoes(*, wanted: list[str], seconds: float, warm_up_s: float, spin_us: int = 0) -> Figures:
    """Echoes of every message in `wanted`, one connection, one request in flight."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise FileNotFoundError("no C compiler: apt-get install gcc")
    figures: Figures = {}
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as folder:
        program = str(Path(folder) / "epoll")
        flags = ("-O2", "-Wall", "-Wextra", "-Werror")
        subprocess.run([compiler, *flags, "-o", program, str(SOURCE)], check=True)
        for name in shapes(wanted):
            figures |= _exchange(program, name, str(warm_up_s), str(seconds), str(spin_us))
    return figures


def _exchange(program: str, name: str, warm_up_s: str, seconds: str, spin_us: str) -> Figures:
    with subprocess.Popen([program, "serve", spin_us], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        size = str(Shape.parse(name).frame_bytes)
        client = subprocess.run(
            [program, "call", port, size, warm_up_s, seconds, spin_us],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        head, *samples = client.stdout.splitlines()
    count, elapsed = head.split()
    durations = summary([int(sample) for sample in samples], unit_ns=US)
    return {
        f"{name}/rate": int(count) / float(elapsed),
        f"{name}/p50": durations["p50"],
        f"{name}/p99": durations["p99"],
    }
