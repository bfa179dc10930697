"""The ways by turns, a table and a picture of what came of it."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

from .memory_limit import memory_limit
from .plot import plot
from .readers import WAYS

ENOUGH_S = 120.0
MEMORY_BYTES_MIN = 64 << 20
"""Less than this Python itself needs with numpy."""


def race(path: Path, options: argparse.Namespace) -> None:
    """Sample in every way by turns, print the table, draw the picture."""
    size = path.stat().st_size
    memory_bytes = max(size // options.memory_share, MEMORY_BYTES_MIN)
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    with memory_limit(memory_bytes) as group:
        if group is None:
            print("no control group can be made here: memory is not limited", file=sys.stderr)
        for number in range(options.rounds):
            for way in WAYS:
                rates[way].append(_turn(way, path, options, group))
                print(f"round {number + 1}: {way:<10} {rates[way][-1]:>9,.0f} records/s")
    limit = f"{memory_bytes >> 20} MiB of memory" if group else "unlimited memory"
    title = f"{options.batch} records of {options.record_bytes} bytes at a time, "
    title += f"file of {size >> 20} MiB, {limit}"
    print(f"\n{title}\n\n{table(rates)}\n\npicture: {plot(rates, title, options.picture)}")


def table(rates: dict[str, list[float]]) -> str:
    """Medians, and how many times as fast RecordFile is in the same round."""
    ours = rates["RecordFile"]
    lines = [f"{'way':<10}  {'records/s':>10}  RecordFile is so many times as fast"]
    for way, measured in rates.items():
        times = statistics.median(mine / its for mine, its in zip(ours, measured, strict=True))
        lines.append(f"{way:<10}  {statistics.median(measured):>10,.0f}  {times:.2f}")
    return "\n".join(lines)


def _turn(way: str, path: Path, options: argparse.Namespace, group: Path | None) -> float:
    given = [way, path, options.batch, options.seconds, group or ""]
    command = [sys.executable, "-m", "examples.replay_sampling.readers", *map(str, given)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=ENOUGH_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{way} ended with status {done.returncode}:\n{done.stderr}")
    return float(done.stdout)
