"""An application, and a program that submits to its server and kills that.

It prints how many requests ended, which ended otherwise than they may, and which ran twice.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import forebay

KILLS = 4
BETWEEN_S = (0.3, 0.8)
BATCH = 20
WORK_S = 5.0
"""A server whose workers are on other machines has its first one later."""

app = forebay.App("chaos")
marks = Path(__file__).parent / "marks"


@app.request(lane="short")
def mark(key: str) -> str:
    """Leave a mark of each run."""
    with open(marks, "ab") as file:
        file.write(f"{key}\n".encode())
    return key


def work(client: forebay.Client, number: int, over: threading.Event, odd: list[str]) -> int:
    """Submit until it is over; returns how many requests were submitted."""
    count = 0
    while not over.is_set():
        keys = [f"{number}-{count + at}" for at in range(BATCH)]
        count += BATCH
        sent = [client.submit(mark, key, options=_once(key)) for key in keys]
        for key, request in zip(keys, sent, strict=True):
            try:
                if request.result(timeout=60) != key:
                    odd.append(f"{key}: another result")
            except forebay.DiedError as error:
                if error.cause != "server":
                    odd.append(f"{key}: {error!r}")
            except forebay.Error as error:
                odd.append(f"{key}: {error!r}")
    return count


def _once(key: str) -> forebay.Submit:
    return forebay.Submit(idempotency=key)


def main() -> None:
    """Two threads submit while the server is killed again and again."""
    over, odd, counts = threading.Event(), list[str](), list[int]()
    with forebay.Client() as client:
        client.run(mark, "first")
        threads = [
            threading.Thread(target=lambda n=n: counts.append(work(client, n, over, odd)))
            for n in range(2)
        ]
        for thread in threads:
            thread.start()
        for _ in range(KILLS):
            done = marks.stat().st_size
            time.sleep(random.uniform(*BETWEEN_S))  # a random moment is what is wanted
            deadline = time.monotonic() + WORK_S
            while marks.stat().st_size == done and time.monotonic() < deadline:
                time.sleep(0.005)
            os.kill(client.info()["pid"], signal.SIGKILL)
        over.set()
        for thread in threads:
            thread.join()
        left = client.list(status=["queued", "running"])
        client.stop(0.0)
        client.wait_gone(20.0)
    runs = Counter(marks.read_text().split())
    twice = [key for key, count in runs.items() if count > 1]
    told = {"requests": sum(counts), "odd": odd, "twice": twice, "left": left}
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
