"""An application for servers whose workers run on a cluster."""

import os
import signal
import time
from collections.abc import Iterator

import forebay

app = forebay.App("engine")


class Counter(forebay.Service):
    """Counts its calls."""

    def __init__(self) -> None:
        self.count = 0

    def add(self) -> tuple[int, int]:
        """How often this was called since the reset; the process."""
        self.count += 1
        return self.count, os.getpid()

    def reset(self) -> None:
        """Begin anew."""
        self.count = 0


app.service(Counter)


@app.request
def add(a: int, b: int) -> int:
    """Print and add."""
    print("adding", a, b)
    return a + b


@app.request(lane="async")
async def add_async(a: int, b: int) -> int:
    """Print and add, beside others."""
    print("adding", a, b)
    return a + b


@app.request
def where() -> int:
    """The process."""
    return os.getpid()


@app.request
def sleep(ctx: forebay.Context, seconds: float) -> str:
    """Sleep in steps."""
    for _ in ctx.progress(range(10)):
        time.sleep(seconds / 10)
    return "slept"


@app.request
def die(number: int) -> None:
    """Die of a signal, or exit where it is none."""
    if number:
        os.kill(os.getpid(), number)
        signal.pause()
    os._exit(7)


@app.request
def fail(text: str) -> None:
    """Raise."""
    raise LookupError(text)


@app.request
def count(limit: int) -> Iterator[dict[str, int]]:
    """Yield numbers."""
    for number in range(limit):
        yield {"number": number}


@app.request
def text(size: int) -> str:
    """A result of so many characters."""
    return "x" * size


@app.request
def length(data: bytes) -> int:
    """Of an argument."""
    return len(data)


@app.request(name="depth")
def depth(ctx: forebay.Context, left: int) -> int:
    """Requests above each other."""
    return 1 + ctx.submit(depth, left - 1).result() if left else 1


@app.request
def total(ctx: forebay.Context, numbers: list[int]) -> int:
    """The sum of children's results."""
    return sum(ctx.map(add, numbers, numbers))


@app.request
def leased(ctx: forebay.Context) -> list[int]:
    """Call a service twice."""
    with ctx.acquire(Counter) as counter:
        return [counter.add()[0], counter.add()[0]]
