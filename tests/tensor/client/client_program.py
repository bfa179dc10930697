"""A client that pulls or pushes without a pause until it is killed; the tests' to start."""

from __future__ import annotations

import sys
from collections import deque
from concurrent.futures import Future
from itertools import count
from typing import Any

import numpy as np

from forebay.tensor import TensorClient

OUTSTANDING = 12


def main() -> None:
    """Look the tensor up, say so, and keep calls of a few megabytes each outstanding."""
    url, method = sys.argv[1:]
    with TensorClient(url, fabric="stream", liveness=1000) as client:
        shape = client.tensor("large").shape
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        calls: deque[Future[Any]] = deque()
        for value in count(1):
            if method == "pull":
                calls.append(client.submit("pull", "large"))
            else:
                calls.append(client.submit("push", "large", None, np.full(shape, value, "f4")))
            if len(calls) == OUTSTANDING:
                calls.popleft().result()


if __name__ == "__main__":
    main()
