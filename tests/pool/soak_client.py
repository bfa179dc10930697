"""One client of the soak, `soak_client.py SEED THREADS`: threads that lease until told to end.

Prints one line for each lease: `ok`, `failed` with the reason that was given, or `WRONG` with what
must never be; ends when its input does.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import threading
import time
from typing import Any

import forebay
from tests.pool.soak_services import Counter, Noting, Single

MAX_SIZE = 3
ACQUIRE_TIMEOUT_S = 5.0
CALL_TIMEOUT_S = 1.0
SLACK_S = 3.0  # beyond its timeout; a stopped client counts, too
PROGRAM = """
import socket, sys
connection = socket.socket(fileno=int(sys.argv[1]))
connection.send(b"!")
while data := connection.recv(64):
    connection.sendall(data)
"""
ECHO = forebay.Command([sys.executable, "-I", "-S", "-c", PROGRAM, "{fd}"])
KINDS: list[tuple[Any, int]] = [
    (Counter.spec(1), 1),
    (Counter.spec(2), 2),
    (Noting.spec(3), 3),
    (Single.spec(4), 4),
    (ECHO, 0),
]


def tell(line: str) -> None:
    """One line, written at once, so that a kill leaves no half of it."""
    os.write(1, line.replace("\n", " | ").encode()[:4000] + b"\n")


def use(service: Any, base: int, source: random.Random) -> None:
    """Some calls, each answer checked."""
    token = f"{os.getpid()}-{threading.get_ident()}-{source.getrandbits(32)}"
    calls = service.lease.options(timeout=CALL_TIMEOUT_S)
    calls.enter(token)
    for _ in range(source.randrange(4)):
        value = source.getrandbits(30)
        method = calls.slow_add if source.random() < 0.3 else calls.add
        answer = method(value)
        if answer != base + value:
            raise AssertionError(f"{base} + {value} is not {answer}")
    answer = calls.leave(token)
    if answer != token:
        raise AssertionError(f"{token} left, {answer} was told")


def use_program(connection: socket.socket, source: random.Random) -> None:
    """The same for a program; its socket is closed after a failure, which ends the program."""
    try:
        connection.settimeout(CALL_TIMEOUT_S)
        for _ in range(source.randrange(1, 4)):
            sent = source.randbytes(16)
            connection.sendall(sent)
            got = connection.recv(64)
            if not got:
                raise ConnectionResetError("the program ended")
            if got != sent:
                raise AssertionError(f"{got!r} is not {sent!r}")
    except BaseException:
        connection.close()
        raise


def lease(pool: forebay.ServicePool, source: random.Random) -> str:
    """One lease; what came of it."""
    what, base = source.choice(KINDS)
    asked = time.monotonic()
    entered = None
    try:
        with pool.acquire(what, timeout=ACQUIRE_TIMEOUT_S) as service:
            entered = time.monotonic()
            if what is ECHO:
                use_program(service.lease.socket, source)
            else:
                use(service, base, source)
        outcome = "ok"
    except forebay.DiedError as error:
        outcome = f"failed: died of {error.cause}" if error.cause else f"WRONG: no cause: {error}"
    except forebay.DeadlineError as error:
        outcome = f"failed: {'call' if entered else 'acquire'} deadline"
        if not entered and "free within" not in str(error) and "ready within" not in str(error):
            outcome = f"WRONG: no reason: {error}"
    except forebay.BrokenError as error:
        outcome = f"failed: broken: {error}"
    except (TimeoutError, ConnectionError) as error:  # of a program's own socket
        outcome = f"failed: {type(error).__name__}" if what is ECHO else f"WRONG: {error!r}"
    except BaseException as error:
        outcome = f"WRONG: {type(error).__name__}: {error}"
    waited = (entered or time.monotonic()) - asked
    if waited > ACQUIRE_TIMEOUT_S + SLACK_S:
        outcome = f"WRONG: waited {waited:.1f} s: {outcome}"
    return outcome


def work(pool: forebay.ServicePool, seed: str, over: threading.Event) -> None:
    """Lease until it is over."""
    source = random.Random(seed)
    while not over.is_set():
        tell(lease(pool, source))


def main(seed: str, threads: str) -> None:
    """Work in threads until the input ends, then close the pool."""
    over = threading.Event()
    with forebay.ServicePool(max_size=MAX_SIZE, reset_timeout=0.5, start_timeout=3.0) as pool:
        workers = [
            threading.Thread(target=work, args=(pool, f"{seed}-{number}", over))
            for number in range(int(threads))
        ]
        for worker in workers:
            worker.start()
        sys.stdin.read()
        over.set()
        for worker in workers:
            worker.join()
        stats = pool.stats()
        busy = stats["live"] - stats["idle"] - stats["settling"]
        if stats["waiters"] or stats["live"] > MAX_SIZE or busy > 0:
            tell(f"WRONG: the pool at the end: {stats}")
    tell("end")


if __name__ == "__main__":
    main(*sys.argv[1:])
