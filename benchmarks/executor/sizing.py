"""What a million requests take, as a table: `python -m benchmarks.executor.sizing [REQUESTS]`.

Requests of several kinds are submitted through the socket, 1,024 in flight, each durable
(`synchronous=full`) and kept after its end, until so many of a kind have ended; two workers.
Told are the rate, what the state directory grew by on the disk for a million, and what the server's
memory grew by meanwhile. Of the database its pages count, whether its log has them or not, and of
other files their blocks, not their lengths. The memory is not for a million, since what a server
keeps of ended requests has limits; so many requests are run before, that its feed of events is
full. The kinds share a state directory and are measured one after the other.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks import machine, processes
from benchmarks.executor.forebay import served
from benchmarks.table import aligned

if TYPE_CHECKING:
    import forebay

REQUESTS = 50_000
IN_FLIGHT = 1024
WORKERS = 2
SETTLE_S = 3.0
"""Until the log of the database was written back, and freed memory given back."""

KEPT = {"RETENTION_BYTES": "100GB", "MAX_QUEUED": "2000000"}
MILLION = 1_000_000
DATABASE = "requests.db"
"""In the state directory."""

FILL = 30_000
"""Three events each: the feed keeps 65,536."""

HEAD = ("requests that", "a second", "disk, GB", "of it logs, GB", "memory grew by, MB")

Submit = Callable[["forebay.Client", int], Any]


class Size(NamedTuple):
    """What a server has: bytes on the disk, of them of logs, and in its memory."""

    disk: int
    logs: int
    memory: int


class Measured(NamedTuple):
    """One kind of request: how many were run, in how long, and the sizes around that."""

    kind: str
    requests: int
    took_s: float
    before: Size
    after: Size

    def line(self) -> tuple[str, ...]:
        """As a line of the table, for a million."""
        pairs = zip(self.before, self.after, strict=True)
        disk, logs, memory = (after - before for before, after in pairs)
        of_million = (f"{it * MILLION / self.requests / 1e9:.2f}" for it in (disk, logs))
        rate = f"{self.requests / self.took_s:,.0f}"
        return (self.kind, rate, *of_million, f"{memory / 1e6:.1f}")


def kinds() -> dict[str, Submit]:
    """What the requests do, and how one is submitted."""
    from benchmarks.executor.application import carry, noop, say

    return {
        "return a number": lambda client, index: client.submit_nowait(noop, index),
        "take 1 kB and return it": lambda client, _: client.submit_nowait(carry, b"." * 1000),
        "print a line of 100 B": lambda client, _: client.submit_nowait(say, "." * 99),
    }


def blocks(folder: Path) -> int:
    """What the files below a folder take on the disk."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            total += os.lstat(os.path.join(path, name)).st_blocks * 512
    return total


def pages(database: Path) -> int:
    """The bytes of a database, whichever of its pages its log has."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as reader:
        (count,) = reader.execute("PRAGMA page_count").fetchone()
        (of,) = reader.execute("PRAGMA page_size").fetchone()
    return int(count) * int(of)


def size(client: forebay.Client) -> Size:
    """What the server has, once it rests."""
    time.sleep(SETTLE_S)
    info = client.info()
    state = Path(info["state_dir"])
    logs, results = blocks(state / "logs"), blocks(state / "results")
    disk = pages(state / DATABASE) + logs + results
    return Size(disk, logs, processes.memory_bytes([info["pid"]]))


def run(client: forebay.Client, submit: Submit, count: int) -> float:
    """Run so many, and take each result; the seconds."""
    began = time.monotonic()
    flight = [submit(client, index) for index in range(IN_FLIGHT)]
    for index in range(IN_FLIGHT, count):
        at = index % IN_FLIGHT
        flight[at].result(60.0)
        flight[at] = submit(client, index)
    for one in flight:
        one.result(60.0)
    return time.monotonic() - began


def measured(count: int) -> Iterator[Measured]:
    """Each kind, one after the other, on one server."""
    with served(WORKERS, **KEPT) as client:
        submits = kinds()
        run(client, next(iter(submits.values())), FILL)
        for kind, submit in submits.items():
            run(client, submit, IN_FLIGHT)  # the workers are warm
            before = size(client)
            took = run(client, submit, count)
            yield Measured(kind, count, took, before, size(client))


def main() -> int:
    """Measure, and print the table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else REQUESTS
    told = machine.description()
    out = sys.stdout
    out.write(f"{told}\n{count:,} requests of each kind; the disk for a million\n\n")
    out.write(aligned(HEAD, [one.line() for one in measured(count)]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
