"""A server that lives until it is killed, and what it does meanwhile; the tests' to start."""

from __future__ import annotations

import os
import signal
import sys
from itertools import count

from forebay.tensor import Tensor, TensorServer


def main() -> None:
    """Serve, say where, and wait."""
    url, fill, does = sys.argv[1], float(sys.argv[2]), sys.argv[3]
    tensors = {
        "small": Tensor((10, 4), initial=fill),
        "large": Tensor((64, 16_384), initial=fill),
    }
    with TensorServer(tensors, url) as server:
        sys.stdout.write(server.url + "\n")
        sys.stdout.flush()
        if does == "fork":
            sys.stdin.readline()
            if os.fork() == 0:
                os.read(0, 1)  # until the test closes its end of it, or is gone
                os._exit(0)
            sys.stdout.write("forked\n")
            sys.stdout.flush()
        if does == "write":
            for version in count():
                server.write("large", None, version)
        signal.pause()


if __name__ == "__main__":
    main()
