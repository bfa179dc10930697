"""An application whose requests use all five systems: what `forebay chaos` strikes.

Each request notes its runs in a ledger outside of the product, and looks at every value that it
gets: a wrong one is a `WrongValueError`, which no fault explains.

| request | what it uses |
|---|---|
| `once`, `again`, `nap` | the executor: the short lane, retries, the async lane |
| `large` | results that become files |
| `grow` | more memory than the others |
| `record` | a file of records |
| `study` | a service, an array by reference, tensors, messages and records, in one run |
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import forebay
from forebay.testing._ledger import Ledger

if TYPE_CHECKING:
    from forebay.transport import AsyncConnection

DIRECTORY: Final = "FOREBAY_CHAOS_DIRECTORY"
"""The variable that names the directory of the experiment."""

RECORDS: Final = "disk/records"
ROWS: Final = 4096
LARGE_BYTES: Final = 1_200_000
"""Beyond what the store keeps in itself: such a result is a file."""

GROW_BYTES: Final = 48_000_000
CALL_S: Final = 10.0
NUMBERS: Final = 50_000
"""In an array of a request: long enough to travel by reference."""

app = forebay.App("chaos")


class WrongValueError(Exception):
    """A system gave another value than it was given."""


def place(name: str) -> str:
    """A path in the directory of the experiment."""
    return os.path.join(os.environ.get(DIRECTORY, "."), name)


class Adder(forebay.Service):
    """Sums arrays, and keeps what one lease has told it."""

    def __init__(self) -> None:
        self._noted: list[int] = []

    def reset(self) -> None:
        """Forget, for the next lease."""
        self._noted.clear()

    def note(self, number: int) -> list[int]:
        """Everything that this lease has noted."""
        self._noted.append(number)
        return list(self._noted)

    def total(self, numbers: Any) -> int:
        """The sum of an array."""
        return int(numbers.sum())


class Echo(forebay.Service):
    """Sends every message back, at a socket of its own, in a thread of its own."""

    stateful: ClassVar[bool] = True

    def __init__(self) -> None:
        self._ready = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()
        if not self._ready.wait(CALL_S):
            raise TimeoutError(f"the echo does not listen after {CALL_S:g} s")

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        from forebay.transport import listen

        own = place(f"echo-{os.getpid()}.sock")
        async with listen(f"unix://{own}", _echo):
            # The newest one is found under one name, whichever there were before.
            os.symlink(own, f"{own}.new")
            os.replace(f"{own}.new", place("echo.sock"))
            self._ready.set()
            await asyncio.Event().wait()


async def _echo(connection: AsyncConnection) -> None:
    async for frames in connection:
        await connection.send(list(frames))


app.service(Adder, min_idle=1, max_size=3)
app.service(Echo, min_idle=1, max_size=1)
app.service(
    forebay.TensorServer.spec(
        {"numbers": forebay.tensor.Tensor((ROWS,), "i8")},
        url=f"unix://{place('tensors.sock')}",
        fabric="stream",
        arena="16MiB",
    ),
    name="tensors",
    shards=1,
)


def _begin(key: str, run: forebay.Context) -> None:
    ledger = Ledger.current()
    if ledger is not None:
        ledger.begun(key, run)


@app.request(lane="short")
def once(ctx: forebay.Context, key: str, seconds: float = 0.0) -> str:
    """May run once."""
    _begin(key, ctx)
    sys.stdout.write(f"{key}\n")
    time.sleep(seconds)
    return key


@app.request(retries=3, backoff="10ms", max_backoff="1s")
def again(ctx: forebay.Context, key: str, seconds: float = 0.0) -> str:
    """May run again."""
    _begin(key, ctx)
    time.sleep(seconds)
    return key


@app.request()
async def nap(ctx: forebay.Context, key: str, seconds: float = 0.0) -> str:
    """May run once, among others in one process."""
    _begin(key, ctx)
    await asyncio.sleep(seconds)
    return key


@app.request(retries=3, backoff="10ms", max_backoff="1s")
def large(ctx: forebay.Context, key: str) -> str:
    """Has a result that becomes a file."""
    _begin(key, ctx)
    return key.ljust(LARGE_BYTES, ".")


@app.request(memory="60MB")
def grow(ctx: forebay.Context, key: str, seconds: float = 0.1) -> str:
    """Use more memory than the others, for a moment."""
    _begin(key, ctx)
    taken = b"x" * GROW_BYTES
    time.sleep(seconds)
    return key if len(taken) == GROW_BYTES else ""


@app.request(concurrency=1, timeout="60s")
def record(ctx: forebay.Context, key: str, number: int) -> int:
    """Append a record; the answer is its position."""
    _begin(key, ctx)
    with forebay.RecordFile(place(RECORDS), "i8", mode="a", checksums=True) as file:
        return file.append(number)


@app.request(timeout="60s")
def study(ctx: forebay.Context, key: str, number: int) -> int:
    """Use a service, an array by reference, tensors, messages and records."""
    _begin(key, ctx)
    _sum(ctx, number)
    _push_and_pull(number)
    _send_and_receive(key, number)
    _sample()
    return number


def _sum(ctx: forebay.Context, number: int) -> None:
    """Sum an array in another process, which maps it."""
    numbers = ctx.arena.empty(NUMBERS, "i8")
    numbers[:] = number
    with ctx.acquire(Adder, timeout=CALL_S) as adder:
        _must("a noted number", adder.note(number), [number])
        for _ in range(2):  # from the second call on uncopied
            _must("a sum", adder.total(numbers), number * NUMBERS)


def _push_and_pull(number: int) -> None:
    """Push a row that no other request uses meanwhile, and pull it.

    The server of the tensors may have died in between: the next one begins with zeros.
    """
    row = number % ROWS
    with forebay.TensorClient(
        f"unix://{place('tensors-proxy.sock')}", fabric="stream", connect_timeout=CALL_S
    ) as tensors:
        tensors.push("numbers", [row], [number], timeout=CALL_S)
        found = int(tensors.pull("numbers", [row], timeout=CALL_S)[0])
    if found != 0:
        _must("a row", found, number)


def _send_and_receive(key: str, number: int) -> None:
    from forebay.transport import connect

    sent = [key.encode(), number.to_bytes(8, "little") * NUMBERS]
    with connect(f"unix://{place('echo-proxy.sock')}", timeout=CALL_S) as connection:
        connection.send(sent)
        _must("a message", [bytes(frame) for frame in connection.recv(timeout=CALL_S)], sent)


def _sample() -> None:
    """Read records while another process appends: a checksum that is wrong is an error."""
    with contextlib.suppress(FileNotFoundError), forebay.RecordFile(place(RECORDS)) as file:
        if len(file):
            file.sample(min(len(file), 64))


def _must(what: str, found: Any, wanted: Any) -> None:
    if found != wanted:
        raise WrongValueError(f"{what} is {str(found)[:80]}, and must be {str(wanted)[:80]}")


def recorded(directory: Path) -> list[int]:
    """The numbers in the file of records of an experiment, in their order; checksums are right."""
    from forebay.blockio import Queue

    try:
        with Queue() as queue, forebay.RecordFile(directory / RECORDS, queue=queue) as file:
            found: list[int] = file.gather(range(len(file))).tolist()
            return found
    except FileNotFoundError:
        return []
