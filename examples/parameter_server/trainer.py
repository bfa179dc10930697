"""A worker: it pulls what a batch needs, and pushes what it learned."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import forebay
from forebay.tensor import Tensor

from .click_log import HELD_OUT, ClickLog, Floats, Ids
from .model import Model, chances, gradients, prepare


class Trainer(forebay.Service):
    """One of several processes that train one model.

    Args:
        urls: of the shards that have the parameters.
        model: what is trained.
        log: what it learns from.
        slots: requests that it has with a shard at once.
    """

    def __init__(self, urls: list[str], model: Model, log: ClickLog, slots: int) -> None:
        self._model = model
        self._log = log
        # Results of pulls lie in memory that is mapped once, and used again.
        # As between machines, which slots are for: on one host rows would be read where they lie.
        self._client = forebay.TensorClient(
            urls, arena=forebay.Arena("1GiB"), slots=slots, fabric="stream"
        )
        self._tables = [self._client.tensor(model.table(each)) for each in range(model.tables)]
        self._layers = [self._client.tensor(name) for name in model.layers]
        self._weights = [self._client.pull(layer) for layer in self._layers]

    def train(self, steps: range, size: int) -> float:
        """Make these steps with batches of `size`; returns the seconds that they took."""
        begin = time.perf_counter()
        for number in steps:
            self._step(number, size)
        return time.perf_counter() - begin

    def chances(self, size: int) -> Floats:
        """How likely the model calls a click, for each of so many held-out impressions."""
        step = prepare(self._log, HELD_OUT, size)
        weights, embeddings = self._pull(step.rows)
        return chances(weights, embeddings, step)

    def parameters(self) -> dict[str, Floats]:
        """All of them, as they are now."""
        names = self._model.names()
        return dict(zip(names, self._client.pull_many(names), strict=True))

    def _step(self, number: int, size: int) -> None:
        step = prepare(self._log, number, size)
        weights, embeddings = self._pull(step.rows)
        by_weights, by_rows = gradients(weights, embeddings, step)
        model = self._model
        rows = zip(self._tables, step.rows, by_rows, strict=True)
        pushes: list[Any] = [
            (table, some, -model.rows_rate * each, "add") for table, some, each in rows
        ]
        pushes += [(ref, None, -model.rate * by_weights[ref.name], "add") for ref in self._layers]
        self._client.push_many(pushes)  # applied when it returns

    def _pull(self, rows: list[Ids]) -> tuple[dict[str, Floats], list[Floats]]:
        """The weights, and the rows of each table, in one go."""
        tables = zip(self._tables, rows, strict=True)
        pulls: list[Any] = [(table, some, None) for table, some in tables]
        pulls += [
            (layer, None, into) for layer, into in zip(self._layers, self._weights, strict=True)
        ]
        found = self._client.pull_many(pulls)
        names = (layer.name for layer in self._layers)
        return dict(zip(names, self._weights, strict=True)), found[: len(rows)]


def tensors(model: Model) -> dict[str, Tensor]:
    """What a server has of a model: each shard makes its own rows."""
    return {
        name: Tensor(model.initial(name).shape, initial=partial(initial_rows, model, name))
        for name in model.names()
    }


def initial_rows(model: Model, name: str, first: int, count: int) -> Floats:
    """Some rows of a tensor before the first step."""
    return model.initial(name)[first : first + count]
