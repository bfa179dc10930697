"""The application: actors, a learner and judges are requests of one server, compilers its services.

`forebay serve examples/autotune/app.py`, then `forebay run learn --seed 1`.

Requests share nothing but arguments, results and the address of the tensor server, so that each
may run in another process, of a cluster on this machine too: actors return their trials, and the
learner alone writes the replay file.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np

import forebay
from examples.gcc_tuning.compiler import Compiler
from examples.gcc_tuning.flags import options_of
from examples.gcc_tuning.found import Found
from examples.gcc_tuning.search import Search

from .features import FEATURES
from .model import BATCH, Learner, Settings, Weights, record_type
from .policy import WAYS, LearnedSearch, RandomSearch, Way
from .programs import HELD_OUT, TRAINING, source, training, write

__all__ = ["Learned", "app", "explore", "judge", "learn"]

CORES = os.cpu_count() or 1
WEIGHTS = "weights"
"""Name of the tensor that a learner publishes."""

LEASE_S = 600.0
"""Seconds for a compiler to be free; actors of another seed may have them all."""

EXPLORE = 0.5
"""Share of random sets among an actor's trials."""


class Workshop(Compiler):
    """A warm compiler that has the sources of all programs, wherever it runs."""

    def __init__(self) -> None:
        self._sources = tempfile.TemporaryDirectory(prefix="autotune-")
        write([*TRAINING, *HELD_OUT], Path(self._sources.name))
        super().__init__(self._sources.name)


app = forebay.App("autotune")
app.service(Workshop, min_idle=1, max_size=CORES)


@dataclass(frozen=True, slots=True)
class Learned:
    """What came of a seed.

    Attributes:
        seed: of all draws.
        trials: recorded in training.
        found: what each way found for the programs that were left out of training.
    """

    seed: int
    trials: int
    found: dict[Way, list[Found]]


@app.request(memory="60MB", retries=1, concurrency=CORES)
def explore(
    ctx: forebay.Context, program: str, weights: str, trials: int = 12, seed: int = 1
) -> bytes:
    """Try flags on a program to train on, by the weights that are there now and at random.

    Args:
        ctx: of the run.
        program: which one.
        weights: the URL of the learner's tensor server.
        trials: compilations; each checks and measures the program too.
        seed: of all draws.

    Returns:
        The trials as records of `record_type`.
    """
    search = LearnedSearch(
        options_of(),
        _pull(ctx, weights),
        source(program),
        budget=trials,
        seed=f"{seed} {program}",
        explore=EXPLORE,
    )
    _run(ctx, program, search)
    records = np.zeros(len(search.values), record_type(len(Settings(options_of()))))
    known = np.zeros(len(FEATURES)) if search.features is None else search.features
    for record, (on, value) in zip(records, search.values, strict=True):
        record["features"], record["on"], record["value"] = known, np.packbits(on), value
    return records.tobytes()


@app.request(memory="60MB", retries=1, concurrency=CORES)
def judge(
    ctx: forebay.Context, way: Way, program: str, weights: str, trials: int = 24, seed: int = 1
) -> Found:
    """Search flags for a program that was left out of training; nothing is learned from it.

    Args:
        ctx: of the run.
        way: how to search.
        program: which one.
        weights: the URL of the learner's tensor server.
        trials: compilations, that of -Os included.
        seed: of all draws.
    """
    options, name = options_of(), f"{seed} {program}"
    search: Search
    if way in ("learned", "untaught"):
        known = Learner(len(Settings(options))).untaught()
        if way == "learned":
            known = _pull(ctx, weights)
        search = LearnedSearch(options, known, source(program), budget=trials, seed=name)
    else:
        search = {"demo": Search, "random": RandomSearch}[way](options, budget=trials, seed=name)
    _run(ctx, program, search)
    return search.found(program)


# Without retries: the weights, and the address that its children were given, end with its worker.
@app.request(memory="200MB")
def learn(
    ctx: forebay.Context,
    seed: int = 1,
    held_out: Sequence[str] = HELD_OUT,
    rounds: int = 5,
    episodes: int = 12,
    explored: int = 12,
    trials: int = 24,
    steps: int = 300,
    folder: str = ".",
) -> Learned:
    """Learn flags on generated programs, then compare four ways on programs held out.

    Args:
        ctx: of the run.
        seed: of all draws.
        held_out: programs to judge by.
        rounds: of episodes, each by the weights that were learned in the one before.
        episodes: of a round, each on a program of its own.
        explored: compilations of an episode.
        trials: compilations for each program and way when judging.
        steps: batches to learn from after each round.
        folder: where the replay file is written, `<id>.fbr`; it stays there.
    """
    made = ctx.progress(total=rounds * episodes + len(WAYS) * len(held_out), unit="requests")
    kind = record_type(len(Settings(options_of())))
    path = Path(folder) / f"{ctx.id}.fbr"
    path.parent.mkdir(parents=True, exist_ok=True)  # on another node than the caller's
    learner = Learner(len(Settings(options_of())))
    with (
        forebay.TensorServer({WEIGHTS: learner.untaught().table}, arena=ctx.arena) as server,
        forebay.RecordFile(path, kind, mode="a", arena=ctx.arena) as replay,
    ):
        rng = np.random.default_rng(seed)
        programs = training(rounds * episodes, seed)
        for number in range(rounds):
            chosen = programs[number * episodes : (number + 1) * episodes]
            same = (repeat(server.url), repeat(explored), repeat(seed))
            for episode in ctx.map(explore, chosen, *same):
                replay.append(np.frombuffer(episode, kind))
                made.advance()
            error = _learn(learner, replay, steps, rng)
            learned = learner.weights(replay.sample(BATCH, rng=rng))
            server.write(WEIGHTS, slice(None), learned.table)
            made.message = f"round {number + 1}, {len(replay)} trials, error {error:.4f}"
        recorded = len(replay)
        found: dict[Way, list[Found]] = {way: [] for way in WAYS}
        asked = [(way, program) for program in held_out for way in WAYS]
        same = (repeat(server.url), repeat(trials), repeat(seed))
        judged = ctx.map(judge, *zip(*asked, strict=True), *same)
        for (way, program), one in zip(asked, judged, strict=True):
            found[way].append(one)
            made.message = f"{WAYS[way]} on {program}"
            made.advance()
    return Learned(seed, recorded, found)


def _run(ctx: forebay.Context, program: str, search: Search) -> None:
    """Use up the budget of a search on a leased compiler."""
    with ctx.acquire(Workshop, timeout=LEASE_S) as compiler:
        trials = ctx.progress(range(search.budget), unit="trials")
        for number in trials:
            search.tell(compiler.compile(program, search.ask(), opcodes=number == 0))
            trials.message = search.describe()


def _learn(
    learner: Learner, replay: forebay.RecordFile, steps: int, rng: np.random.Generator
) -> float:
    """Learn from so many batches; returns the error of the last ones, in logarithms of size."""
    errors = [learner.step(replay.sample(BATCH, rng=rng)) for _ in range(steps)]
    return float(np.sqrt(np.mean(errors[-20:])))


def _pull(ctx: forebay.Context, url: str) -> Weights:
    """The learner's weights, all of one version, in memory of this worker's arena."""
    with forebay.TensorClient(url, arena=ctx.arena) as client:
        return Weights(client.pull(WEIGHTS))
