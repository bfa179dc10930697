"""One client of the soak, `soak_client.py SEED THREADS [PATH]`: threads that lease until its end.

With a path they lease from the shared pool there, which lends to all clients.

One of the threads runs an event loop, on which some leases are cancelled.
Prints one line for each lease: `ok`, `cancelled`, `failed` with the reason that was given, or
`WRONG` with what must never be; ends when its input does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import socket
import sys
import threading
import time
import traceback
from typing import Any, Self

import forebay
from forebay.testing import chaos
from tests.pool.faults.soak_services import Counter, Forked, Noting, Shared, Single

MAX_SIZE = 3
ACQUIRE_TIMEOUT_S = 5.0
CALL_TIMEOUT_S = 0.25
FORKS, CANCELS = 0.05, 0.1  # of the leases
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
    (Forked.spec(5), 5),
    (Shared.spec(6), 6),
    (ECHO, 0),
]

Pool = forebay.ServicePool | forebay.SharedPool

LOOP_KINDS = KINDS[:-2]
"""Without the program, which is spoken to by blocking calls, and without the shared service, which
threads and a loop cannot use at the same time (test_shared_faces.py)."""

POLICIES: dict[str, Any] = {
    "min_idle": 1,
    "max_uses": 7,
    "max_lifetime": 0.5,
    "idle_timeout": 0.3,
    "ping_after": 0.02,
    "canary_every": 3,
    "max_running": 2,
}
"""For one client in two: every policy at a value that makes it act."""


def tell(line: str) -> None:
    """One line, written at once, so that a kill leaves no half of it."""
    os.write(1, line.replace("\n", " | ").encode()[:6000] + b"\n")


class Wrong(AssertionError):
    """What must never be."""


def token_of(source: random.Random) -> str:
    """A name that no other lease has."""
    return f"{os.getpid()}-{threading.get_ident()}-{source.getrandbits(32)}"


def expect(answer: object, right: object) -> None:
    """Check an answer."""
    if answer != right:
        raise Wrong(f"{answer!r} is not {right!r}")


def use(service: Any, base: int, source: random.Random, *, forks: float) -> None:
    """Some calls, each answer checked; now and then to two live copies as well."""
    token = token_of(source)
    calls = service.lease.options(timeout=CALL_TIMEOUT_S)
    calls.enter(token)
    for _ in range(source.randrange(4)):
        value = source.getrandbits(30)
        method = calls.slow_add if source.random() < 0.3 else calls.add
        expect(method(value), base + value)
    try:
        if source.random() < forks:
            use_copies(service, base, token)
    finally:  # the death of a copy is not the service's, which must be left as it was found
        expect(calls.leave(token), token)


def use_copies(service: Any, base: int, token: str) -> None:
    """Two copies of a service that is in use: each is in use by the same."""
    with service.lease.fork(2, timeout=CALL_TIMEOUT_S) as copies:
        for copied in copies:
            calls = copied.lease.options(timeout=CALL_TIMEOUT_S)
            expect(calls.add(7), base + 7)
            expect(calls.leave(token), token)


async def ause(service: Any, base: int, source: random.Random) -> None:
    """The same from an event loop, without the copies."""
    token = token_of(source)
    calls = service.lease.options(timeout=CALL_TIMEOUT_S)
    await calls.enter(token)
    for _ in range(source.randrange(4)):
        value = source.getrandbits(30)
        expect(await calls.slow_add(value), base + value)
    expect(await calls.leave(token), token)


def use_program(connection: socket.socket, source: random.Random) -> None:
    """Some exchanges with a program; a failure closes its socket, which ends the program."""
    try:
        connection.settimeout(CALL_TIMEOUT_S)
        for _ in range(source.randrange(1, 4)):
            sent = source.randbytes(16)
            connection.sendall(sent)
            got = connection.recv(64)
            if not got:
                raise ConnectionResetError("the program ended")
            expect(got, sent)
    except BaseException:
        connection.close()
        raise


class Attempt:
    """One lease as a context: what came of it, judged and told."""

    def __init__(self, what: Any) -> None:
        self._program = what is ECHO
        self._asked = time.monotonic()
        self._entered: float | None = None

    def entered(self) -> None:
        """The lease is there."""
        self._entered = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> bool:
        outcome = "ok" if error is None else self._judged(error)
        waited = (self._entered or time.monotonic()) - self._asked
        if waited > ACQUIRE_TIMEOUT_S + SLACK_S:
            outcome = f"WRONG: waited {waited:.1f} s: {outcome}"
        tell(outcome)
        return True

    def _judged(self, error: BaseException) -> str:
        if isinstance(error, forebay.DiedError) and error.cause:
            return f"failed: died of {error.cause}"
        if isinstance(error, forebay.DeadlineError):
            told = self._entered or "free within" in str(error) or "told of no" in str(error)
            return (
                f"failed: {'call' if self._entered else 'acquire'} deadline"
                if told
                else wrong(error)
            )
        if type(error) is forebay.BrokenError:
            return f"failed: {re.sub('[0-9]+', 'N', str(error))}"
        if isinstance(error, asyncio.CancelledError):
            return "cancelled"
        if self._program and isinstance(error, (TimeoutError, ConnectionError)):
            return f"failed: {type(error).__name__} of a program's socket"
        return wrong(error)


def wrong(error: BaseException) -> str:
    """An error that must never be, with where it came from."""
    return "WRONG: " + "".join(traceback.format_exception(error))


def work(pool: Pool, seed: str, over: threading.Event) -> None:
    """Lease in a thread until it is over."""
    source = random.Random(seed)
    forks = FORKS if isinstance(pool, forebay.ServicePool) else 0.0
    while not over.is_set():
        wait_for_lender(pool, over)
        what, base = source.choice(KINDS)
        with Attempt(what) as attempt, pool.acquire(what, timeout=ACQUIRE_TIMEOUT_S) as service:
            attempt.entered()
            if what is ECHO:
                use_program(service.lease.socket, source)
            else:
                use(service, base, source, forks=forks)


async def alease(pool: Pool, source: random.Random) -> None:
    """One lease on a loop."""
    what, base = source.choice(LOOP_KINDS)
    with Attempt(what) as attempt:
        async with pool.acquire(what, timeout=ACQUIRE_TIMEOUT_S) as service:
            attempt.entered()
            await ause(service, base, source)


async def awork(pool: Pool, seed: str, over: threading.Event) -> None:
    """Lease on a loop until it is over; one in ten is cancelled at some moment."""
    source = random.Random(seed)
    while not over.is_set():
        await asyncio.to_thread(wait_for_lender, pool, over)
        lease = asyncio.ensure_future(alease(pool, source))
        if source.random() < CANCELS:
            asyncio.get_running_loop().call_later(source.uniform(0, 0.01), lease.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await lease


def wait_for_lender(pool: Pool, over: threading.Event) -> None:
    """While no lender is there, wait for one: leases that cannot be had are no leases."""
    if isinstance(pool, forebay.ServicePool):
        return
    while not over.is_set():
        try:
            pool.link()
        except forebay.BrokenError:
            over.wait(0.02)
        else:
            return


def pool_of(seed: str, path: str) -> Pool:
    """The pool of a client: its own, or the one that all share."""
    if path:
        return forebay.SharedPool(path)
    policies = POLICIES if random.Random(seed).random() < 0.5 else {}
    return forebay.ServicePool(max_size=MAX_SIZE, reset_timeout=0.5, start_timeout=3.0, **policies)


def run(seed: str, threads: int, path: str) -> None:
    """Work in threads until the input ends, then close the pool."""
    over = threading.Event()
    with pool_of(seed, path) as pool:
        names = [f"{seed}-{number}" for number in range(threads)]
        workers = [threading.Thread(target=work, args=(pool, name, over)) for name in names[1:]]
        loop = awork(pool, names[0], over)
        workers.append(threading.Thread(target=asyncio.run, args=(loop,)))
        for worker in workers:
            worker.start()
        sys.stdin.read()
        over.set()
        for worker in workers:
            worker.join()
        if isinstance(pool, forebay.ServicePool):
            expect_at_rest(pool)


def expect_at_rest(pool: forebay.ServicePool) -> None:
    """Nobody holds a lease or waits any more."""
    stats = pool.stats()
    busy = stats["live"] - stats["idle"] - stats["settling"]
    if stats["waiters"] or stats["live"] > MAX_SIZE:
        tell(f"WRONG: the pool at the end: {stats}")
    if busy > 0 and not pool.config.min_idle:  # what is kept ready may be starting
        tell(f"WRONG: {busy} busy at the end: {stats}")


def main(seed: str, threads: str, path: str = "") -> None:
    """Be a client, and leave nothing.

    What one client of a shared pool leaves is looked for when all are done: the mark by which it
    is found is a part of the environment, and one of its own would be a kind of its own.
    """
    try:
        with contextlib.nullcontext() if path else chaos.nothing_left():
            run(seed, int(threads), path)
    except AssertionError as left:
        tell(wrong(left))
    tell("end")


if __name__ == "__main__":
    main(*sys.argv[1:])
