"""Launches on a small node: each takes 60 MB for ten seconds, beside what is imported.

`forebay serve examples/small_node/launch.py`, then `forebay submit launch --name job-1`.
"""

from __future__ import annotations

import os
import time

import numpy as np
from matplotlib import pyplot as plt  # what an application imports is paid for once

import forebay

MEGABYTES = 60
SECONDS = 10.0

app = forebay.App("launches")


@app.request(cpu=0.05, retries=3)
def launch(ctx: forebay.Context, name: str, record: str = os.devnull) -> str:
    """Take memory, hold it for a while, and write down that it is done.

    Args:
        ctx: of the run.
        name: of what is launched.
        record: a file that gets a line with the name.
    """
    held = np.ones(MEGABYTES << 20, np.uint8)
    for _ in ctx.progress(range(20), message=name):
        time.sleep(SECONDS / 20)
    with open(record, "a") as file:
        file.write(f"{name}\n")
    return f"{name}: {held.nbytes >> 20} MB, with {plt.__name__}"
