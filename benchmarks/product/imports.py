"""A whole process that imports something and ends; asyncio is imported in every one."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.stopwatch import Figures, time_each


def imported(modules: str, starts: int, warm_up: int) -> Figures:
    """From its start to its end, as its parent sees it.

    Args:
        modules: to import beside asyncio, with commas between; may be empty.
        starts: how many are timed, one after the other.
        warm_up: how many are made before.
    """
    names = ", ".join(filter(None, ("asyncio", modules)))
    command = [sys.executable, "-c", f"import {names}"]

    def start() -> int:
        started = time.perf_counter_ns()
        subprocess.run(command, check=True)
        return time.perf_counter_ns() - started

    return time_each(start, count=starts, warm_up=warm_up)
