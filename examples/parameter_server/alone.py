"""The same training in one process, with all parameters in its own memory."""

from __future__ import annotations

from .click_log import ClickLog, Floats
from .model import Model, gradients, prepare


def train(model: Model, log: ClickLog, steps: int, size: int) -> dict[str, Floats]:
    """Train step by step; returns the parameters by name."""
    held = {name: model.initial(name) for name in model.names()}
    tables = [held[model.table(table)] for table in range(model.tables)]
    for number in range(steps):
        step = prepare(log, number, size)
        embeddings = [table[rows] for table, rows in zip(tables, step.rows, strict=True)]
        by_weights, by_rows = gradients(held, embeddings, step)
        for name, gradient in by_weights.items():
            held[name] += -model.rate * gradient
        for table, rows, gradient in zip(tables, step.rows, by_rows, strict=True):
            table[rows] += -model.rows_rate * gradient
    return held
