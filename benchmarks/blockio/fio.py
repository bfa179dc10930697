"""fio, the usual load generator, at the depth and in the batches that ours is given.

`io_uring`, one thread; `tuned` adds what fio can do beyond its defaults: registered buffers and
files, fewer looks at the clock. Processor time is what fio tells of its job.
"""

from __future__ import annotations

import json
import shutil
import subprocess

from benchmarks.blockio.file import prepare
from benchmarks.blockio.load import BATCH, DEPTH
from benchmarks.blockio.meter import CPU, RATE, US_PER_S
from benchmarks.blockio.stores import told
from benchmarks.stopwatch import Figures

ENOUGH_S = 60.0
TUNED = ("--fixedbufs=1", "--registerfiles=1", "--gtod_reduce=1", "--nonvectored=1")


def fio(store: str, seconds: float, tuned: int = 0) -> Figures:
    """Random reads of a store.

    Args:
        store: `direct`, `cached` or `zram`.
        seconds: how long is timed.
        tuned: whether with everything that makes fio faster.
    """
    program = shutil.which("fio")
    if program is None:
        raise FileNotFoundError("fio is not installed: make bench-setup")
    path = told().path(store)
    prepare(path, store)
    command = [
        *(program, "--name=reads", f"--filename={path}", "--rw=randread", "--bs=4k"),
        *("--ioengine=io_uring", f"--direct={int(store != 'cached')}", "--invalidate=0"),
        *(f"--iodepth={DEPTH}", f"--iodepth_batch_submit={BATCH}"),
        *(f"--iodepth_batch_complete_min={BATCH}", f"--iodepth_batch_complete_max={DEPTH}"),
        *("--time_based", f"--runtime={seconds * 1e3:.0f}ms"),
        *("--norandommap=1", "--randrepeat=0", "--thread", "--output-format=json"),
        *(TUNED if tuned else ()),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=ENOUGH_S, check=False)
    if ended.returncode != 0:
        raise RuntimeError(f"fio ended with status {ended.returncode}: {ended.stderr.strip()}")
    return _figures(ended.stdout)


def version() -> str:
    """What fio calls itself; empty where there is none."""
    program = shutil.which("fio")
    if program is None:
        return ""
    return subprocess.run([program, "--version"], capture_output=True, text=True).stdout.strip()


def _figures(output: str) -> Figures:
    """What the job says of itself; it may print notes before its JSON."""
    job = json.loads(output[output.index("{") :])["jobs"][0]
    if job["error"]:
        raise RuntimeError(f"fio's job ended with error {job['error']}")
    read = job["read"]
    cpu_s = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1e3
    return {RATE: read["iops"], CPU: cpu_s / read["total_ios"] * US_PER_S}
