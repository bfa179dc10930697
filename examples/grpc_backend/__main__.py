"""Pool the gRPC server, and say what that saves."""

from __future__ import annotations

import sys
import time

import forebay
from examples.grpc_backend.words import WordsStub
from forebay.contrib.grpc import Grpc

WORDS = forebay.Command(
    [sys.executable, "-m", "examples.grpc_backend.server", "unix:{socket}"],
    connect=Grpc(WordsStub),
)


def count(word: str) -> int:
    """Ask a pooled server; it is lent for this one call."""
    with forebay.acquire(WORDS) as backend:
        return int(backend.client.Count(word, timeout=5))


def main() -> None:
    """Call once cold and some times warm."""
    for word in ("return", "self", "import", "yield", "pool"):
        began = time.perf_counter()
        occurs = count(word)
        took_ms = (time.perf_counter() - began) * 1000
        print(f"{took_ms:8.2f} ms  {word:<8} {occurs:>6} times")
    with forebay.acquire(WORDS) as backend:
        print("most frequent:", ", ".join(backend.client.Top(5, timeout=5)))


if __name__ == "__main__":
    main()
