"""A program that appends until it is killed, and says what it was told is on the disk.

Arguments: path, capacity (0: none), threads, and "checksums" or "plain".
Each acknowledged append is four bytes of writer and eight of how many records it has appended.
"""

from __future__ import annotations

import os
import struct
import sys
import threading

import numpy as np

from forebay.blockio.records.file import RecordFile
from tests.blockio.record_files import PLAIN, numbered

ACKNOWLEDGED = struct.Struct("<IQ")


def append(file: RecordFile, writer: int) -> None:
    sizes = np.random.default_rng(writer)
    number = int(file.first + len(file)) and _next(file, writer)
    while True:
        n = int(sizes.choice([1, 1, 1, 5, 40]))
        file.append(numbered(number, n, writer=writer))
        number += n
        os.write(1, ACKNOWLEDGED.pack(writer, number))


def _next(file: RecordFile, writer: int) -> int:
    """Where the writer stopped when it was killed."""
    records = file.gather(np.arange(len(file)))
    ours = records[records["writer"] == writer]
    return int(ours["number"][-1]) + 1 if len(ours) else 0


def main() -> None:
    path, capacity, threads, checksums = sys.argv[1:]
    file = RecordFile(
        path, PLAIN, mode="a", capacity=int(capacity) or None, checksums=checksums == "checksums"
    )
    os.write(1, b"!" * ACKNOWLEDGED.size)
    for writer in range(int(threads)):
        threading.Thread(target=append, args=(file, writer)).start()


if __name__ == "__main__":
    main()
