"""Servers and workers, each a warm process of one pool."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import forebay

from .click_log import ClickLog, Floats
from .model import Model
from .trainer import Trainer, tensors


@dataclass(frozen=True)
class Cluster:
    """Running servers.

    Args:
        pool: of all processes.
        urls: of the shards.
        model: whose parameters they have.
        log: what is learned from.
    """

    pool: forebay.ServicePool
    urls: list[str]
    model: Model
    log: ClickLog

    @contextlib.contextmanager
    def workers(self, count: int, slots: int) -> Iterator[list[Any]]:
        """So many trainers, connected."""
        spec = Trainer.spec(self.urls, self.model, self.log, slots)
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(self.pool.acquire(spec)) for _ in range(count)]


@contextlib.contextmanager
def cluster(
    model: Model, log: ClickLog, folder: Path, *, shards: int, workers: int
) -> Iterator[Cluster]:
    """Servers with the parameters as they are before the first step, and room for workers.

    They end with the block, and with this process however it ends.
    """
    url = f"unix://{folder}/{{shard}}.sock"
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(forebay.ServicePool(max_size=shards + workers))
        urls = []
        for shard in range(shards):
            spec = forebay.TensorServer.spec(tensors(model), url, shard=shard, shards=shards)
            urls.append(stack.enter_context(pool.acquire(spec)).describe()["url"])
        yield Cluster(pool, urls, model, log)


@dataclass(frozen=True)
class Outcome:
    """What came of a training.

    Args:
        seconds: of the slowest worker.
        parameters: afterwards.
        chances: what the model says of the held-out impressions.
    """

    seconds: float
    parameters: dict[str, Floats]
    chances: Floats


def train(
    running: Cluster, *, workers: int, slots: int, steps: int, batch: int, held_out: int
) -> Outcome:
    """Have workers train at once, each with every `workers`-th batch."""
    with running.workers(workers, slots) as trainers:
        futures = [
            trainer.lease.submit("train", range(number, steps, workers), batch)
            for number, trainer in enumerate(trainers)
        ]
        seconds = max(future.result() for future in futures)
        first = trainers[0]
        return Outcome(seconds, first.parameters(), first.chances(held_out))
