"""What the example prints: losses beside each other, then throughput."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from . import alone
from .click_log import HELD_OUT, ClickLog, Floats, log_loss
from .cluster import Outcome, cluster, train
from .model import Model, chances, prepare


def report(options: argparse.Namespace, folder: Path) -> None:
    """Train in three ways and compare; then measure, and draw."""
    model = Model(options.tables, options.rows)
    log = ClickLog(options.tables, options.rows)
    truth = log.batch(HELD_OUT, options.held_out)
    print(f"{options.tables} tables of {options.rows} rows; {options.shards} shards;", end=" ")
    print(f"{options.steps} steps with batches of {options.batch}")
    _say("the model that drew the clicks", log_loss(truth.chance, truth.clicked), "the best one")

    held = alone.train(model, log, options.steps, options.batch)
    step = prepare(log, HELD_OUT, options.held_out)
    _say("before the first step", _loss(model, _initial(model), log, options), "")
    embeddings = [held[model.table(each)][rows] for each, rows in enumerate(step.rows)]
    alone_loss = log_loss(chances(held, embeddings, step), truth.clicked)
    _say("one process alone", alone_loss, "")
    for workers in (1, options.workers):
        ended = _train(model, log, folder, options, workers)
        loss = log_loss(ended.chances, truth.clicked)
        word = "worker" if workers == 1 else "workers"
        if workers == 1:
            note = f"parameters differ by {_difference(held, ended.parameters):.1e} at most"
        else:  # each pulls what the others have pushed by then, so no two runs are the same
            note = f"{loss - alone_loss:+.4f} beside one process"
        _say(f"{workers} {word} and a server", loss, note)
    if options.picture is not None:
        _measure(model, log, folder, options)


def _train(
    model: Model, log: ClickLog, folder: Path, options: argparse.Namespace, workers: int
) -> Outcome:
    with cluster(model, log, folder, shards=options.shards, workers=workers) as running:
        return train(
            running,
            workers=workers,
            slots=options.slots,
            steps=options.steps,
            batch=options.batch,
            held_out=options.held_out,
        )


def _measure(model: Model, log: ClickLog, folder: Path, options: argparse.Namespace) -> None:
    """Steps per second against workers, by turns for one slot and for many."""
    from .plot import plot

    most = max(options.measured)
    rates: dict[int, dict[int, float]] = {1: {}, options.slots: {}}
    with cluster(model, log, folder, shards=options.shards, workers=most) as running:
        for workers in options.measured:
            for slots, by_workers in rates.items():
                steps = options.measured_steps * workers
                ended = train(
                    running, workers=workers, slots=slots, steps=steps, batch=options.batch,
                    held_out=options.batch,
                )  # fmt: skip
                by_workers[workers] = steps / ended.seconds
                print(f"{workers:3} workers, {slots:2} slots: {by_workers[workers]:8.1f} steps/s")
    title = f"{options.shards} shards, batches of {options.batch}, {model.tables} tables"
    print("drawn:", plot(rates, title, options.picture), file=sys.stderr)


def _initial(model: Model) -> dict[str, Floats]:
    return {name: model.initial(name) for name in model.names()}


def _loss(
    model: Model, held: dict[str, Floats], log: ClickLog, options: argparse.Namespace
) -> float:
    """Of these parameters, on what no step has seen."""
    step = prepare(log, HELD_OUT, options.held_out)
    embeddings = [held[model.table(each)][rows] for each, rows in enumerate(step.rows)]
    return log_loss(chances(held, embeddings, step), step.batch.clicked)


def _difference(one: dict[str, Floats], other: dict[str, Floats]) -> float:
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


def _say(what: str, loss: float, note: str) -> None:
    print(f"{what:32} loss {loss:.4f}  {note}".rstrip())
