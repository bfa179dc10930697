"""An application whose request leases three kinds of services: `forebay serve` it, or call it.

A notebook that scores words (a Python service with numpy), a gRPC server that counts them, and a
tool server on stdin and stdout that finds definitions. The notebook is copied eight times, with
its state, to try eight seeds at once.
"""

from __future__ import annotations

import random
from typing import Any

import forebay
from examples.grpc_backend.__main__ import WORDS
from examples.stdio_backend.__main__ import TOOLS

COPIES = 8
ARRAY_BYTES = 10 << 20

app = forebay.App("one-request")


class Notebook(forebay.Service):
    """Keeps what a request tells it until the request is over."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def reset(self) -> None:
        """Forget, for the next request."""
        self._counts.clear()

    def note(self, word: str, count: int) -> None:
        """Keep how often a word occurs."""
        self._counts[word] = count

    def score(self, seed: int) -> float:
        """Something that depends on what is noted."""
        draw = random.Random(seed)
        return round(sum(count * draw.random() for count in self._counts.values()), 3)

    def total(self, array: Any) -> int:
        """The sum of a large array, which comes by reference."""
        return int(array.sum())


app.service(Notebook)
app.service(WORDS)


@app.request(lane="long", timeout="2min")
def study(ctx: forebay.Context, words: list[str], seed: int) -> dict[str, Any]:
    """Count and find words, score them by eight copies, and sum an array elsewhere."""
    import numpy

    with (
        ctx.acquire(Notebook) as notebook,
        ctx.acquire(WORDS) as counter,
        ctx.acquire(TOOLS) as tools,
    ):
        counts = {word: int(counter.client.Count(word, timeout=5)) for word in words}
        places = {word: _place(tools, word) for word in words}
        for word, count in counts.items():
            notebook.note(word, count)
        with notebook.lease.fork(COPIES) as copies:
            futures = [
                copy.lease.submit("score", seed + number) for number, copy in enumerate(copies)
            ]
            scores = [future.result() for future in futures]
            copied = [copy.lease.pid for copy in copies]
        array = numpy.ones(ARRAY_BYTES, numpy.uint8)
        total = [notebook.total(array) for _ in range(2)][-1]  # from the second call on uncopied
        return {
            "counts": counts,
            "places": places,
            "scores": scores,
            "copies": copied,
            "array_sum": total,
            "services": [each.lease.pid for each in (notebook, counter, tools)],
        }


def _place(tools: Any, word: str) -> str:
    """Where a word is defined, as the tool server says."""
    found = tools.client.call("tools/call", name="find_definition", arguments={"name": word})
    return str(found["content"][0]["text"])
