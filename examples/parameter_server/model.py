"""A model of DLRM's shape: embeddings, their interactions, and two small networks.

Dense features go through the bottom network and become a vector of the embeddings' width. The
products of all pairs of vectors, beside that one, go through the top network to one number.
Source: Naumov et al., "Deep Learning Recommendation Model" (2019), arXiv:1906.00091.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .click_log import DENSE, Batch, ClickLog, Floats, Ids

Weights = Mapping[str, Floats]


@dataclass(frozen=True)
class Model:
    """Sizes, and how fast it learns.

    Args:
        tables: of embeddings.
        rows: of each.
        width: of an embedding.
        hidden: neurons of each hidden layer.
        rate: by which gradients are multiplied; those of embeddings by `rows_rate`, for each row is
            in few impressions.
    """

    tables: int
    rows: int
    width: int = 16
    hidden: int = 64
    rate: float = 0.2
    rows_rate: float = 20.0

    @property
    def layers(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the weights of both networks."""
        vectors = self.tables + 1
        top = self.width + vectors * (vectors - 1) // 2
        sizes = {"bottom0": (DENSE, self.hidden), "bottom1": (self.hidden, self.width)}
        sizes |= {"top0": (top, self.hidden), "top1": (self.hidden, 1)}
        return {
            name + part: shape[at:]
            for name, shape in sizes.items()
            for part, at in ((".weight", 0), (".bias", 1))
        }

    def table(self, table: int) -> str:
        """The name of a table of embeddings."""
        return f"embedding{table}"

    def initial(self, name: str, seed: int = 11) -> Floats:
        """What a tensor of the model is before the first step; the same in every process."""
        rng = np.random.default_rng((seed, *name.encode()))
        if name.startswith("embedding"):
            return rng.standard_normal((self.rows, self.width), np.float32) * np.float32(0.1)
        shape = self.layers[name]
        if len(shape) == 1:
            return np.zeros(shape, np.float32)
        return rng.standard_normal(shape, np.float32) * np.float32((2 / shape[0]) ** 0.5)

    def names(self) -> list[str]:
        """All tensors: tables of embeddings first."""
        return [*(self.table(each) for each in range(self.tables)), *self.layers]


class Step(NamedTuple):
    """What a batch needs of the tables, and where it needs it."""

    batch: Batch
    rows: list[Ids]
    """For each table the rows that are in it, each once."""
    places: list[Ids]
    """For each table and impression which of those rows it has."""


def prepare(log: ClickLog, number: int, size: int) -> Step:
    """The step of that number."""
    batch = log.batch(number, size)
    pairs = [np.unique(ids, return_inverse=True) for ids in batch.ids]
    return Step(batch, [rows for rows, _ in pairs], [places.reshape(-1) for _, places in pairs])


def predict(weights: Weights, vectors: Floats) -> tuple[Floats, tuple[Floats, Floats]]:
    """The logit of each impression, and what the way back needs."""
    first, second = np.triu_indices(vectors.shape[1], 1)
    products = np.matmul(vectors, vectors.transpose(0, 2, 1))[:, first, second]
    together = np.concatenate([vectors[:, 0], products], axis=1)
    hidden = np.maximum(together @ weights["top0.weight"] + weights["top0.bias"], 0)
    logit = (hidden @ weights["top1.weight"] + weights["top1.bias"])[:, 0]
    return logit, (together, hidden)


def forward(weights: Weights, embeddings: list[Floats], step: Step) -> tuple[Floats, Floats]:
    """The vectors of each impression, (n, tables + 1, width), and the bottom's hidden layer."""
    dense = step.batch.dense
    hidden = np.maximum(dense @ weights["bottom0.weight"] + weights["bottom0.bias"], 0)
    bottom = np.maximum(hidden @ weights["bottom1.weight"] + weights["bottom1.bias"], 0)
    looked_up = [table[places] for table, places in zip(embeddings, step.places, strict=True)]
    return np.stack([bottom, *looked_up], axis=1), hidden


def chances(weights: Weights, embeddings: list[Floats], step: Step) -> Floats:
    """How likely each impression is clicked, as the model says."""
    vectors, _ = forward(weights, embeddings, step)
    logit, _ = predict(weights, vectors)
    return _squashed(logit)


def gradients(
    weights: Weights, embeddings: list[Floats], step: Step
) -> tuple[dict[str, Floats], list[Floats]]:
    """Of the mean loss, by the weights and by the rows of each table."""
    vectors, bottom_hidden = forward(weights, embeddings, step)
    logit, (together, hidden) = predict(weights, vectors)
    error = (_squashed(logit) - step.batch.clicked)[:, None] / np.float32(len(logit))
    found: dict[str, Floats] = {}

    def back(name: str, given: Floats, wrong: Floats) -> Floats:
        found[f"{name}.weight"] = given.T @ wrong
        found[f"{name}.bias"] = wrong.sum(axis=0)
        before: Floats = wrong @ weights[f"{name}.weight"].T
        return before

    by_together = back("top0", together, back("top1", hidden, error) * (hidden > 0))
    width = vectors.shape[2]
    by_vectors = _by_vectors(vectors, by_together[:, width:])
    by_vectors[:, 0] += by_together[:, :width]
    bottom = by_vectors[:, 0] * (vectors[:, 0] > 0)
    back("bottom0", step.batch.dense, back("bottom1", bottom_hidden, bottom) * (bottom_hidden > 0))
    by_rows = []
    for table, (rows, places) in enumerate(zip(step.rows, step.places, strict=True), 1):
        each = np.zeros((len(rows), width), np.float32)
        np.add.at(each, places, by_vectors[:, table])
        by_rows.append(each)
    return found, by_rows


def _by_vectors(vectors: Floats, by_products: Floats) -> Floats:
    """Each product belongs to two vectors, and grows in one as the other is large."""
    count = vectors.shape[1]
    first, second = np.triu_indices(count, 1)
    square = np.zeros((len(vectors), count, count), np.float32)
    square[:, first, second] = by_products
    square[:, second, first] = by_products
    product: Floats = np.matmul(square, vectors)
    return product


def _squashed(logit: Floats) -> Floats:
    return (1 / (1 + np.exp(-logit))).astype(np.float32)
