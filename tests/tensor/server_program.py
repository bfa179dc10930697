"""A server that lives until it is killed; the tests' to start."""

from __future__ import annotations

import signal
import sys

from forebay.tensor import Tensor, TensorServer


def main() -> None:
    """Serve, say where, and wait."""
    url, fill = sys.argv[1], float(sys.argv[2])
    tensors = {
        "small": Tensor((10, 4), initial=fill),
        "large": Tensor((64, 16_384), initial=fill),
    }
    with TensorServer(tensors, url) as server:
        sys.stdout.write(server.url + "\n")
        sys.stdout.flush()
        signal.pause()


if __name__ == "__main__":
    main()
