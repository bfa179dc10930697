"""The application of the small node: 110 MB of imports, requests with memory of their own."""

from __future__ import annotations

import os
import time

import numpy as np
from sklearn import datasets, ensemble, metrics

import forebay

STEP_BYTES = 8 << 20
STEP_S = 0.005

DIGITS, DIGIT = datasets.load_digits(return_X_y=True)
KERNEL = metrics.pairwise.rbf_kernel(DIGITS)
"""What its requests look up: 26 MB."""
MODEL = ensemble.RandomForestClassifier(20, n_jobs=1, random_state=1).fit(DIGITS, DIGIT)
app = forebay.App("node")


@app.request(lane="long", cpu=0.05)
def work(megabytes: int = 60, seconds: float = 2.0) -> int:
    """Take memory, hold it for a while, and say which process did.

    Args:
        megabytes: what it takes beside the imports.
        seconds: how long it holds it.
    """
    held = np.ones(megabytes << 20, np.uint8)
    time.sleep(seconds)
    del held
    return os.getpid()


@app.request(lane="long", cpu=0.05)
def tell(lines: int = 10, pause: float = 1.0) -> None:
    """Print a line after each pause.

    Args:
        lines: how many.
        pause: in seconds.
    """
    for line in range(lines):
        print(line, flush=True)
        time.sleep(pause)


@app.request(lane="long", cpu=0.05, memory="60MB")
def overrun(megabytes: int = 2048) -> int:
    """Take far more than was said, as a leak does: step by step."""
    held = []
    for _ in range((megabytes << 20) // STEP_BYTES):
        held.append(np.ones(STEP_BYTES, np.uint8))
        time.sleep(STEP_S)
    return len(held)
