"""The application: batches come off the disk, and embeddings from two servers, into one arena.

`forebay serve examples/training/trainer.py`, then `forebay run train --steps 20000`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import forebay
from forebay.tensor import Tensor

ITEMS, WIDTH = 20_000, 16
"""How many embeddings there are, and how long each is."""

RECORDS = 200_000
SHARDS = 2
BATCH = 256
RATE = 0.02
MESSAGE_STEPS = 200
TRANSITION = np.dtype([("item", "<u4"), ("reward", "<f4"), ("state", "<f4", (WIDTH,))])

Floats = npt.NDArray[np.float32]

SOCKETS = os.environ.get("XDG_RUNTIME_DIR") or "/tmp"
URL = f"unix://{SOCKETS}/forebay-training-{os.getuid()}-{{shard}}.sock"
"""Of both servers, each with its number."""


def births(first: int, count: int) -> npt.NDArray[np.int64]:
    """A number that each server draws when it starts, by which a new one is told apart."""
    return np.random.default_rng().integers(1, 1 << 62, count)


TENSORS = {
    "embedding": Tensor((ITEMS, WIDTH), "f4"),
    "births": Tensor((SHARDS,), "i8", initial=births),
}

app = forebay.App("training")
app.service(forebay.TensorServer.spec(TENSORS, URL), name="ps", shards=SHARDS)


@dataclass(frozen=True, slots=True)
class Trained:
    """What came of a run.

    Attributes:
        steps: how many were made.
        loss: mean of the squared errors over the last batches.
        loss_before: the same over the first ones.
    """

    steps: int
    loss: float
    loss_before: float


# Its parameters are those of the servers, so a run after a death goes on from where they are.
@app.request(memory="400MB")
def train(ctx: forebay.Context, steps: int = 2_000, folder: str = ".", seed: int = 1) -> Trained:
    """Learn embeddings from a replay file.

    Args:
        ctx: of the run.
        steps: batches of 256 to learn from.
        folder: where the replay file is, or is written by the first run.
        seed: of all draws.
    """
    path = Path(folder) / "replay.fbr"
    if not path.exists():
        _record(path, seed)
    rng = np.random.default_rng(seed)
    losses: list[float] = []
    with (
        forebay.RecordFile(path, arena=ctx.arena) as replay,
        forebay.TensorClient(URL, shards=SHARDS, arena=ctx.arena) as client,
    ):
        embedding, born = client.tensor("embedding"), client.pull("births")
        made = ctx.progress(range(steps), unit="steps")
        for number in made:
            batch = replay.sample(BATCH, rng=rng)  # read from the disk into the arena
            losses.append(_learn(client, embedding, batch))
            if number % MESSAGE_STEPS == 0:
                _check_births(client, born)
                made.message = f"loss {_mean(losses[-MESSAGE_STEPS:]):.4f}"
        return Trained(steps, _mean(losses[-MESSAGE_STEPS:]), _mean(losses[:MESSAGE_STEPS]))


def _learn(client: forebay.TensorClient, embedding: Any, batch: npt.NDArray[np.void]) -> float:
    """One step; returns the mean squared error before it."""
    items, states = batch["item"].astype(np.int64), batch["state"]
    rows = client.pull(embedding, items)  # from both servers, into the same arena
    errors: Floats = (rows * states).sum(axis=1) - batch["reward"]
    client.push(embedding, items, -RATE * errors[:, None] * states, "add")
    return float(np.mean(errors**2))


def _check_births(client: forebay.TensorClient, born: npt.NDArray[np.int64]) -> None:
    """Notice a server that was started again between two calls, which would begin at zero."""
    for shard in np.flatnonzero(client.pull("births") != born):
        url = URL.replace("{shard}", str(shard))
        raise RuntimeError(f"{url} was started again: what it had learned is lost")


def _mean(losses: list[float]) -> float:
    return float(np.mean(losses))


def _record(path: Path, seed: int) -> None:
    """Write transitions whose rewards follow from embeddings that nobody else knows."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(ITEMS, WIDTH)).astype("f4") / WIDTH**0.5
    rows = np.zeros(RECORDS, TRANSITION)
    rows["item"] = rng.integers(0, ITEMS, RECORDS)
    rows["state"] = rng.normal(size=(RECORDS, WIDTH))
    rows["reward"] = (truth[rows["item"]] * rows["state"]).sum(axis=1)
    with forebay.RecordFile(path, TRANSITION, mode="a") as file:
        file.append(rows)
