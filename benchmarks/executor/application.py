"""Our application, imported by its workers and by the client."""

from __future__ import annotations

import time

import forebay

app = forebay.App("bench")

# With a hint nobody has to learn first what it needs.
MEMORY = "10MB"


# ahead: the process pools hand their workers calls ahead, too.
@app.request(lane="short", memory=MEMORY, ahead=8)
def noop(index: int) -> int:
    """Return the number."""
    return index


@app.request(lane="short", memory=MEMORY, ahead=8)
def carry(content: bytes) -> bytes:
    """Return what was given."""
    return content


@app.request(lane="short", memory=MEMORY)
def say(text: str) -> None:
    """Write a line."""
    print(text, flush=True)


@app.request(lane="long", memory=MEMORY)
def occupy(seconds: float = 3600.0) -> None:
    """Hold a worker."""
    time.sleep(seconds)


@app.request(lane="short", memory=MEMORY)
def tell_time(pauses: list[float]) -> int:
    """Write a line with the time after each pause; return how many."""
    for pause in pauses:
        time.sleep(pause)
        print(time.monotonic_ns(), flush=True)
    return len(pauses)
