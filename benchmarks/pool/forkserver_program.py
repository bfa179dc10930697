"""An ordinary program that starts processes with multiprocessing's forkserver.

It has what programs have: arguments, a log, JSON, numpy; and it preloads numpy, as told.
CPython 3.11's forkserver runs the program's module again in each process that it starts (its
preloading of `__main__` does not work, python/cpython#126631), so what a program imports beside
what it preloads is paid at every start. `--bare` leaves argparse, json and logging out.
"""

import multiprocessing
import sys
import time

import numpy

BARE = "--bare" in sys.argv
if not BARE:
    import argparse
    import json
    import logging


def first_byte(pipe: "multiprocessing.connection.Connection") -> None:
    """The service: ready once numpy is there."""
    pipe.send_bytes(numpy.__name__.encode())


def timed_start(context: multiprocessing.context.ForkServerContext) -> int:
    """Nanoseconds from asking for a process until its first byte."""
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=first_byte, args=(theirs,))
    asked = time.monotonic_ns()
    process.start()
    ours.recv_bytes()
    ready = time.monotonic_ns()
    process.join()
    process.close()
    ours.close()
    theirs.close()
    return ready - asked


def main() -> None:
    """Start processes one after the other and print what each took."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["numpy", "__main__"])
    starts = int(sys.argv[1])
    if BARE:
        print([timed_start(context) for _ in range(starts)])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("starts", type=int)
    logging.getLogger(__name__).debug("starting %d processes", starts)
    print(json.dumps([timed_start(context) for _ in range(parser.parse_args().starts)]))


if __name__ == "__main__":
    main()
