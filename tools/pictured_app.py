"""The application that the pictures of the dashboard show: a small laboratory."""

from __future__ import annotations

import os
import random
import signal
import time

import forebay

TUNE_STEPS = 240
STEP_S = 0.25

app = forebay.App("laboratory")


class Compiler(forebay.Service):
    """Stands for a tool that is slow to start, and kept warm."""

    def build(self, flags: str) -> float:
        """Build with flags; returns a speed-up."""
        time.sleep(0.2)
        return 1 + (sum(flags.encode()) % 50) / 100


app.service(Compiler, min_idle=1)


@app.request(lane="short")
def embed(document: int) -> int:
    """Ends soon."""
    time.sleep(random.uniform(0.05, 0.4))
    print(f"document {document}: 768 numbers")
    return document


@app.request(lane="long", retries=2, backoff=2, memory="60MB")
def fetch(url: str, tries: int = 2) -> str:
    """Fails so many times before it succeeds."""
    attempt = int(time.time() * 1000) % 3
    print(f"GET {url}")
    time.sleep(random.uniform(0.3, 1.5))
    if attempt < tries:
        raise ConnectionError(f"{url} answered 503: upstream is <overloaded>")
    return url


@app.request(lane="long", memory="120MB")
def simulate(cells: int) -> None:
    """Takes memory, and is killed."""
    print(f"grid of {cells} cells", flush=True)
    held = bytearray(80_000_000)
    held[:: 1 << 12] = b"x" * len(held[:: 1 << 12])
    time.sleep(1.5)
    print("step 1: residual 0.031", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


@app.request(lane="long", memory="80MB")
def tune(ctx: forebay.Context, program: str, budget: int = TUNE_STEPS) -> float:
    """Reports progress, prints, leases a service and submits children."""
    best = 1.0
    held = bytearray(random.randrange(20, 60) * 1_000_000)
    held[:: 1 << 12] = b"x" * len(held[:: 1 << 12])
    with forebay.Client() as client, ctx.acquire(Compiler) as compiler:
        for step in ctx.progress(range(budget), unit="builds"):
            flags = f"-O{step % 4} -funroll={step}"
            speed = compiler.build(flags)
            if speed > best:
                best = speed
                print(f"build {step:>4}  {flags:<24} {speed:.2f}x  best so far", flush=True)
            else:
                print(f"build {step:>4}  {flags:<24} {speed:.2f}x", flush=True)
            if step % 40 == 5:
                client.submit("embed", step)
            time.sleep(STEP_S)
    return best


@app.request(lane="long", concurrency=1, concurrency_key="site", memory="40MB")
def publish(site: str, pages: int) -> int:
    """One at a time of each site."""
    time.sleep(pages)
    return pages


@app.request(lane="short", cron="*/5 * * * *")
def report() -> None:
    """Runs by the clock."""


@app.request(lane="long", cron="0 3 * * *")
def sweep() -> None:
    """Runs at night."""
