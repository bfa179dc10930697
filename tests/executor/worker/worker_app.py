"""The application that the workers of these tests run."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import datetime
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forebay

app = forebay.App("worker-tests")
logger = logging.getLogger("worker_app")
logger.addHandler(logging.StreamHandler())
VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("worker_app_variable")


@dataclasses.dataclass
class Point:
    x: int
    label: bytes = b""


class Numbers(forebay.Service):
    """A service that requests acquire."""

    def pid(self) -> int:
        """Which process."""
        return os.getpid()


app.service(Numbers, min_idle=2)


@app.request(lane="short")
def noop() -> None:
    """Do nothing."""


@app.request()
def echo(value: Any = None) -> Any:
    """Return it."""
    return value


@app.request()
def big(size: int) -> bytes:
    """Return that many bytes."""
    return bytes(size)


@app.request()
def add(first: int, second: float = 1.5, *, scale: int = 1) -> float:
    """Add."""
    return (first + second) * scale


@app.request()
def typed(points: list[Point], at: datetime.datetime) -> list[str]:
    """Tell what came."""
    return [type(points[0]).__name__, type(points[0].label).__name__, at.isoformat()]


@app.request()
def who(value: int, ctx: forebay.Context) -> list[Any]:
    """Tell what the context says."""
    told = [value, ctx.id, ctx.attempt, ctx.name, ctx.remaining is not None]
    return [*told, ctx.traceparent, ctx.parent]


@app.request()
def fail(text: str) -> None:
    """Raise."""
    raise ValueError(text)


@app.request()
def leave(code: int) -> None:
    """Try to end the process."""
    sys.exit(code)


@app.request()
def unsendable() -> Any:
    """Return what is no data."""
    return [object()]


@app.request()
def deface(directory: str, how: str = "returns") -> None:
    """Change everything that a request can change of its process."""
    os.environ["FOREBAY_TEST_LEFT"] = "yes"
    os.environ.pop("HOME", None)
    os.environ["PATH"] = "/nowhere"
    os.chdir(directory)
    os.umask(0o007)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    sys.stderr.close()
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    logging.basicConfig(level=logging.DEBUG, force=True)
    logging.getLogger("left.over").addHandler(logging.StreamHandler())
    if how == "raises":
        raise ValueError(how)
    if how == "exits":
        sys.exit(how)
    if how == "is interrupted":
        raise KeyboardInterrupt


@app.request()
def state() -> dict[str, Any]:
    """What `deface` changes."""
    mask = os.umask(0)
    os.umask(mask)
    return {
        "left": os.environ.get("FOREBAY_TEST_LEFT"),
        "home": os.environ.get("HOME"),
        "path": subprocess.run(["/usr/bin/env"], capture_output=True, text=True).stdout.count(
            "PATH=/nowhere"
        ),
        "cwd": os.getcwd(),
        "umask": mask,
        "stdout": sys.stdout.fileno(),
        "stderr": sys.stderr.closed,
        "usr1": repr(signal.getsignal(signal.SIGUSR1)),
        "term": repr(signal.getsignal(signal.SIGTERM)),
        "level": logging.root.level,
        "handlers": len(logging.root.handlers),
        "other": len(logging.getLogger("left.over").handlers),
    }


@app.request()
def redirect(how: str) -> None:
    """Redirect both descriptors, close one, and fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(2)
    raise ValueError(how)


@app.request()
def fork(careless: bool) -> int:
    """Fork a child that returns from the request too, or one that only SIGTERM ends."""
    pid = os.fork()
    if pid == 0 and not careless:
        time.sleep(60)
    if pid == 0:
        return 0
    if not careless:
        os.kill(pid, signal.SIGTERM)
    return os.waitpid(pid, 0)[1]


@app.request()
def remove(directory: str) -> None:
    """Remove the directory that it works in."""
    os.chdir(directory)
    os.rmdir(directory)


@app.request()
def alarm(seconds: float) -> None:
    """Leave a timer behind."""
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(1))
    signal.setitimer(signal.ITIMER_REAL, seconds)


@app.request()
def echo_late(seconds: float, value: Any) -> Any:
    """Return it later."""
    time.sleep(seconds)
    return value


@app.request()
def variable(value: str) -> str:
    """Set a context variable, and return what it was."""
    before = VARIABLE.get("unset")
    VARIABLE.set(value)
    return before


@app.request()
def speak(text: str, number: int = 1) -> None:
    """Print."""
    print(text, end="")
    print(f"{text} {number}", file=sys.stderr)


@app.request()
def last_words(text: str) -> None:
    """Print, and end as the kernel might end it."""
    print(text, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


@app.request()
def log(ctx: forebay.Context, text: str) -> None:
    """Log a line."""
    ctx.log.info(text)
    ctx.log.debug("not this one")


@app.request()
def count(ctx: forebay.Context, total: int, pause: float = 0.0) -> int:
    """Tell progress."""

    def slowly() -> Iterator[int]:
        for number in range(total):
            if pause:
                time.sleep(pause)
            yield number

    return sum(1 for _ in ctx.progress(slowly(), total, message="counting", unit="steps"))


@app.request()
def sleep(ctx: forebay.Context, path: str, seconds: float = 30.0, stubborn: bool = False) -> str:
    """Say by a file that it runs, and sleep."""
    file = Path(path)
    file.touch()
    try:
        time.sleep(seconds)
    except forebay.executor.Cancelled:
        file.write_text("cancelled" if ctx.cancelled() else "?")
        if not stubborn:
            raise
        return "went on"
    return "slept"


class Slow:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __del__(self) -> None:
        self.path.touch()
        time.sleep(30)


@app.request()
def destroy(path: str) -> None:
    """Spend its time in a destructor, where an exception is lost, and then elsewhere."""
    Slow(Path(path))
    time.sleep(30)


@app.request()
def borrow(ctx: forebay.Context, times: int, keep: bool = False) -> list[int]:
    """Acquire services, by the context and by the default pool."""
    found = []
    for number in range(times):
        lent = ctx.acquire(Numbers) if number % 2 else forebay.acquire(Numbers)
        numbers = lent.__enter__()
        found.append(numbers.pid())
        if not keep:
            lent.__exit__(None, None, None)
    return found


@app.request()
async def nap(seconds: float, value: Any = None) -> Any:
    """Sleep beside others."""
    await asyncio.sleep(seconds)
    return value


@app.request()
async def talk(ctx: forebay.Context, name: str, rounds: int) -> None:
    """Print beside others."""
    for number in range(rounds):
        print(f"{name} {number}")
        await asyncio.sleep(0)
    await asyncio.to_thread(print, f"{name} thread")
    print(f"{name} end", end="", file=sys.stderr)


@app.request()
async def log_line(text: str) -> None:
    """Log by a handler that was made when the application was imported."""
    logger.warning(text)


@app.request()
async def borrow_beside(times: int, keep: bool = False) -> list[int]:
    """Acquire services on the loop."""
    found = []
    for _ in range(times):
        lent = forebay.acquire(Numbers)
        numbers: Any = await lent.__aenter__()
        found.append(await numbers.pid())
        if not keep:
            await lent.__aexit__(None, None, None)
    return found


@app.request()
async def wait(ctx: forebay.Context, path: str) -> None:
    """Wait until cancelled, and say so."""
    file = Path(path)
    file.touch()
    try:
        await asyncio.sleep(60)
    finally:
        file.write_text(f"cancelled {ctx.cancelled()}")


@app.request()
async def raise_exit() -> None:
    """Try to end the process of all others."""
    raise SystemExit(3)
