"""How long nobody is served while a server is replaced: `python -m benchmarks.executor.takeover`.

A client runs one no-op after the other; `forebay serve --takeover` replaces the server a few times
meanwhile. Told is the longest time between two results of each take-over, beside the longest one
between two take-overs, for several numbers of unfinished requests in the store. Arguments: these
numbers. It fails where a gap is longer than was asked.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from benchmarks import machine
from benchmarks.executor.forebay import RESULT_S, TARGET, served
from benchmarks.table import aligned

if TYPE_CHECKING:
    import forebay

UNFINISHED = (0, 10_000, 100_000)
TIMES = 5
REST_S = 2.0
"""Between two take-overs."""

DELAY_S = 86_400.0
"""Of requests that stay unfinished."""

GAP_MS_MAX = 100.0
"""Asked, with up to so many unfinished requests as the next number says."""

UNFINISHED_ASKED = 10_000

HEAD = ("unfinished", "longest gap in a take-over, ms", "least", "most", "without one, ms")


class Gap(NamedTuple):
    """Between two results: when it began, and how long it was, in seconds."""

    began: float
    took: float


class Runner:
    """Runs one no-op after the other, in a thread of its own."""

    def __init__(self, client: forebay.Client) -> None:
        self.gaps: list[Gap] = []
        self._client = client
        self._over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self._over = True
        self._thread.join()

    def longest(self, since: float, until: float) -> float:
        """The longest gap that has begun between two times, in milliseconds."""
        return (
            max((gap.took for gap in self.gaps if since <= gap.began <= until), default=0.0) * 1e3
        )

    def _run(self) -> None:
        from benchmarks.executor.application import noop

        index = 0
        while not self._over:
            began = time.monotonic()
            self._client.submit_nowait(noop, index).result(RESULT_S)
            self.gaps.append(Gap(began, time.monotonic() - began))
            index += 1


def fill(client: forebay.Client, count: int) -> None:
    """Have so many unfinished requests."""
    import forebay
    from benchmarks.executor.application import noop

    later = forebay.Submit(delay=DELAY_S)
    client.submit_many(noop, ({"index": index} for index in range(count)), options=later)


def replace() -> subprocess.Popen[str]:
    """Start a server in the place of the one that runs; returns when it serves."""
    command = [sys.executable, "-m", "forebay.cli", "serve", TARGET, "--takeover", "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    for line in server.stdout:
        if '"ready"' in line:
            return server
    raise SystemExit(f"the new server ended with {server.wait()}")


def measured(count: int) -> tuple[float, ...]:
    """The gaps with so many unfinished requests: the median, the least, the most, and without."""
    with served(2, MAX_QUEUED="2000000") as client:
        fill(client, count)
        runner = Runner(client)
        gaps, rests, servers = [], [], []
        try:
            for _ in range(TIMES):
                began = time.monotonic()
                time.sleep(REST_S)
                asked = time.monotonic()
                servers.append(replace())
                ready = time.monotonic()
                time.sleep(REST_S)
                rests.append(runner.longest(began, asked - 0.1))
                gaps.append(runner.longest(asked, ready))
        finally:
            runner.close()
        client.ask("stop", 5.0)
        for server in servers:
            server.wait()
            assert server.stdout is not None
            server.stdout.close()
    return (statistics.median(gaps), min(gaps), max(gaps), statistics.median(rests))


def main() -> int:
    """Measure, and print the table; 1 where a gap is too long."""
    out = sys.stdout
    out.write(f"{machine.description()}\n{TIMES} take-overs each\n\n")
    counts = tuple(map(int, sys.argv[1:])) or UNFINISHED
    gaps = {count: measured(count) for count in counts}
    lines = [(f"{count:,}", *(f"{one:.1f}" for one in gap)) for count, gap in gaps.items()]
    out.write(aligned(HEAD, lines) + "\n")
    asked = [gap[0] for count, gap in gaps.items() if count <= UNFINISHED_ASKED]
    is_broken = any(gap > GAP_MS_MAX for gap in asked)
    out.write(f"asked: at most {GAP_MS_MAX:g} ms with up to {UNFINISHED_ASKED:,} unfinished\n")
    return int(is_broken)


if __name__ == "__main__":
    sys.exit(main())
