"""The example of a parameter server, run small."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PNG = b"\x89PNG\r\n\x1a\n"
SMALL = ("--quick", "--tables", "3", "--rows", "40", "--steps", "200", "--batch", "128")


def example(*options: str) -> str:
    """What the example prints, as a newcomer types it."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.parameter_server", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def loss_of(what: str, printed: str) -> float:
    """The loss in the line that begins so."""
    found = re.search(rf"^{what}\s+loss ([0-9.]+)", printed, re.MULTILINE)
    assert found is not None, printed
    return float(found[1])


@pytest.mark.timeout(120)
def test_one_worker_learns_exactly_what_one_process_does() -> None:
    """Rows that travel are the rows that were there, and pushes add up to what was added."""
    printed = example(*SMALL)
    before = loss_of("before the first step", printed)
    alone = loss_of("one process alone", printed)
    several = loss_of("2 workers and a server", printed)
    best = loss_of("the model that drew the clicks", printed)
    assert loss_of("1 worker and a server", printed) == alone
    told = re.search(r"^1 worker .* differ by ([0-9.e+-]+) at most", printed, re.MULTILINE)
    assert told is not None
    assert float(told[1]) < 1e-5
    assert best < alone < before - 0.02
    # Whoever is first differs from run to run, and so does where they end: not much higher.
    assert several - alone < 0.5 * (before - alone)


@pytest.mark.timeout(120)
def test_throughput_is_drawn(tmp_path: Path) -> None:
    """A picture of steps per second for one slot and for many."""
    picture = tmp_path / "made" / "throughput.png"
    measured = ("--measured", "1", "2", "--measured-steps", "5", "--picture", str(picture))
    printed = example(*SMALL, "--steps", "4", *measured)
    for workers in (1, 2):
        for slots in (1, 16):
            assert re.search(
                rf"^ *{workers} workers, +{slots} slots: +[0-9.]+ steps/s", printed, re.M
            )
    assert picture.read_bytes().startswith(PNG)


def test_gradients_are_those_of_the_loss() -> None:
    """A step goes downhill: every gradient agrees with what a small change does to the loss."""
    import numpy as np

    from examples.parameter_server.click_log import ClickLog, log_loss
    from examples.parameter_server.model import Model, chances, gradients, prepare

    model, log = Model(2, 6, width=3, hidden=5), ClickLog(2, 6)
    step = prepare(log, 1, 16)
    weights = {name: model.initial(name).astype("f8") for name in model.layers}
    embeddings = [
        model.initial(model.table(each))[rows].astype("f8") for each, rows in enumerate(step.rows)
    ]
    by_weights, by_rows = gradients(weights, embeddings, step)
    small = 1e-3
    for array, gradient in [
        *((weights[name], by_weights[name]) for name in weights),
        *zip(embeddings, by_rows, strict=True),
    ]:
        at = np.unravel_index(np.abs(gradient).argmax(), gradient.shape)
        losses = []
        for change in (small, -2 * small):
            array[at] += change
            losses.append(log_loss(chances(weights, embeddings, step), step.batch.clicked))
        array[at] += small
        assert np.isclose((losses[0] - losses[1]) / (2 * small), gradient[at], rtol=0.05, atol=1e-4)
