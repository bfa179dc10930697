"""From a byte written by a running request to the byte in the hands of who follows its log.

Ours is pushed. The peer is a process that writes the same lines to a file, and a reader that looks
for more each 100 ms. The pauses between lines fall out of step with that.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable

from benchmarks.claim import OWN, Claim, Contestant
from benchmarks.stopwatch import MS, Figures, summary

POLL_S = 0.1
PAUSES_S = (0.013, 0.037, 0.059, 0.083, 0.101)
WRITER = """
import sys, time
for pause in map(float, sys.argv[1:]):
    time.sleep(pause)
    print(time.monotonic_ns(), flush=True)
"""


def _pauses(lines: int) -> list[float]:
    return [PAUSES_S[number % len(PAUSES_S)] for number in range(lines)]


def _figures(chunks: Iterable[str | bytes], lines: int) -> Figures:
    """How old each line was when its chunk came; none is split, for each is written at once."""
    samples: list[int] = []
    for chunk in chunks:
        now = time.monotonic_ns()
        samples += [now - int(line) for line in chunk.split()]
    if len(samples) != lines:
        raise ValueError(f"{len(samples)} of {lines} lines came")
    return summary(samples, unit_ns=MS)


def forebay_pushed(lines: int) -> Figures:
    """The log of a request, followed from its start."""
    from benchmarks.executor.application import tell_time
    from benchmarks.executor.forebay import served

    with served(workers=1) as client:
        request = client.submit_nowait(tell_time, _pauses(lines))
        return _figures(request.logs(follow=True), lines)


def polled(lines: int) -> Figures:
    """A file, read again each 100 ms while there is nothing more in it."""
    with tempfile.NamedTemporaryFile() as log:
        command = (sys.executable, "-c", WRITER, *map(str, _pauses(lines)))
        with subprocess.Popen(command, stdout=log) as writer:
            return _figures(_read(log.name, writer), lines)


def _read(path: str, writer: subprocess.Popen[bytes]) -> Iterable[bytes]:
    with open(path, "rb") as file:
        while True:
            ended = writer.poll() is not None
            if chunk := file.read():
                yield chunk
            elif ended:
                return
            else:
                time.sleep(POLL_S)


OPTIONS = {"lines": 100}
QUICK = {"lines": 40}
FOREBAY = Contestant(
    "forebay, log followed", "benchmarks.executor.log:forebay_pushed", OWN, OPTIONS, QUICK
)
POLLED = Contestant("log polled each 100 ms", "benchmarks.executor.log:polled", OWN, OPTIONS, QUICK)

CLAIMS = [Claim("executor.log.first_byte.vs_poll", FOREBAY, POLLED, "p50", "ms")]
