"""The baseline of the small node: a process spawned for each request, and no look at the memory.

As the API server did that ours comes from: so many at once as somebody chose, each imports the
application anew, and a worker that the kernel kills leaves no result.
Run as a program: `AT_ONCE REQUESTS MEGABYTES SECONDS`; prints how many ended well.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
from multiprocessing.connection import Connection
from threading import Thread


def _request(results: Connection, megabytes: int, seconds: float) -> None:
    from benchmarks.executor.node_app import work

    results.send(work(megabytes, seconds))


def _runner(left: list[int], done: list[int], megabytes: int, seconds: float) -> None:
    """Run one request after the other, each in a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    while left:
        left.pop()
        ours, theirs = spawn.Pipe(duplex=False)
        process = spawn.Process(target=_request, args=(theirs, megabytes, seconds))
        process.start()
        theirs.close()
        with contextlib.suppress(EOFError):  # it was killed
            done.append(ours.recv())
        process.join()


def main(at_once: int, requests: int, megabytes: int, seconds: float) -> int:
    """Run the requests; returns how many ended well."""
    import benchmarks.executor.node_app  # noqa: F401 - the server has imported the application too

    left, done = list(range(requests)), list[int]()
    runners = [
        Thread(target=_runner, args=(left, done, megabytes, seconds)) for _ in range(at_once)
    ]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    return len(done)


if __name__ == "__main__":
    print(main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
