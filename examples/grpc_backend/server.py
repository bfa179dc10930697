"""A gRPC server of word counts; it reads its corpus when it starts, and that takes a while.

By hand: `python -m examples.grpc_backend.server unix:/tmp/words.sock`.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

from examples.grpc_backend.words import add_words_to_server

FILES_MAX = 150


class Words:
    """Counts the words of the standard library's sources."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        for path in sorted(Path(os.__file__).parent.glob("*.py"))[:FILES_MAX]:
            self.counts.update(re.findall(r"[a-z]+", path.read_text(errors="replace").lower()))

    def Count(self, request: str, context: Any) -> int:
        """How often a word occurs; a second of silence for the word `wait`."""
        if request == "wait":
            time.sleep(1)
        if not request.isalpha():
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{request!r} is no word")
        return self.counts[request]

    def Top(self, request: str, context: Any) -> Iterator[str]:
        """So many words, the most frequent first."""
        for word, _ in self.counts.most_common(int(request)):
            yield word


def main(address: str) -> None:
    """Serve until killed."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    add_words_to_server(Words(), server)
    server.add_insecure_port(address)
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(sys.argv[1])
