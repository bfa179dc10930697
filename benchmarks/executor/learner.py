"""An application of more than 100 MB of imports, and a call that holds its worker."""

from __future__ import annotations

import os
import socket
import time

import scipy.optimize
import sklearn.ensemble

libraries = (scipy.optimize, sklearn.ensemble)


def hold(address: str) -> None:
    """Say when this worker began and which process it is, then wait until it is let go."""
    with socket.socket(socket.AF_UNIX) as driver:
        driver.connect(address)
        driver.sendall(f"{time.monotonic_ns()} {os.getpid()}".encode())
        driver.recv(1)
