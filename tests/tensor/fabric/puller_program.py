"""A client that pulls so many times, and says what it saw; the tests' to start."""

from __future__ import annotations

import json
import sys

import numpy as np

from forebay.tensor import TensorClient


def main() -> None:
    """Say that the tensor is known, wait for a line, pull, and write the counts as JSON."""
    url, fabric, end = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with TensorClient(url, fabric=fabric, liveness=1000) as client:
        ref = client.tensor("table")
        out = np.empty(ref.shape, ref.dtype)
        client.pull(ref, None, out)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        seen, mixed, back, last = set(), 0, 0, -1
        while last < end:
            client.pull(ref, None, out)
            value = int(out[0, 0])
            mixed += bool((out != value).any())
            back += value < last
            seen.add(value)
            last = value
        metrics = client.metrics()
    told = {"versions": len(seen), "mixed": mixed, "back": back, "shm": metrics["shm_pulls"]}
    sys.stdout.write(json.dumps({**told, "busy": metrics["shm_busy"]}) + "\n")


if __name__ == "__main__":
    main()
