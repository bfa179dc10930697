"""Settings of a queue: limits, engines, the configuration, what `forebay doctor` shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forebay.blockio import Queue
from forebay.cli.doctor.checks import findings
from forebay.config import BlockioConfig
from forebay.configuration import find_configuration
from forebay.errors import ConfigError


@given(st.integers(-1, 1 << 17), st.integers(-1, 1 << 17))
@example(64, 192)
@example((1 << 15) - 1, (1 << 16) - 1)
def test_limits_are_right_or_named(max_batch: int, max_concurrency: int) -> None:
    """Each of the five conditions is told by name, and all else works."""
    right = 0 < max_batch < 1 << 15 and max_batch <= max_concurrency < 1 << 16
    if right:
        with Queue(max_batch=max_batch, max_concurrency=max_concurrency) as queue:
            assert not queue.closed
        return
    with pytest.raises(ConfigError, match=r"max_(batch|concurrency) is"):
        Queue(max_batch=max_batch, max_concurrency=max_concurrency)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("threads", 0), ("threads", 1025), ("engine", "fast"), ("max_quarantine_bytes", -1)],
)
def test_a_setting_that_cannot_be_is_named(setting: str, value: object) -> None:
    """A typing mistake is told with the value and what would be right."""
    with pytest.raises(ConfigError, match=setting):
        Queue(**{setting: value})  # type: ignore[arg-type]


def test_settings_come_from_argument_environment_and_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container that forbids io_uring is told so once, for every program in it."""
    file = tmp_path / "forebay.toml"
    file.write_text('[blockio]\nengine = "threads"\nthreads = 3\nmax_quarantine_bytes = "1MiB"\n')
    configuration = find_configuration(start=tmp_path, environment={})
    assert configuration.blockio == BlockioConfig(
        engine="threads", threads=3, max_quarantine_bytes=1 << 20
    )
    monkeypatch.chdir(tmp_path)
    with Queue() as queue:
        assert queue.engine == "threads"
        assert queue.stats()["max_quarantine_bytes"] == 1 << 20
    with Queue(engine="auto", max_quarantine_bytes="2MiB") as queue:
        assert queue.stats()["max_quarantine_bytes"] == 2 << 20
    monkeypatch.setenv("FOREBAY_BLOCKIO_ENGINE", "nothing")
    with pytest.raises(ConfigError, match="FOREBAY_BLOCKIO_ENGINE"):
        Queue()


def test_the_engine_says_why(queue: Queue) -> None:
    """Who finds reads slow has to learn which engine is at work."""
    assert queue.engine in ("ring", "threads")
    assert len(queue.reason) > 10


def test_doctor_shows_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first thing to look at where reads are slower than they should be."""
    monkeypatch.setenv("FOREBAY_BLOCKIO_ENGINE", "threads")
    shown = {finding.name: finding for finding in findings(None)}
    assert shown["block I/O"].state == "note"
    assert shown["block I/O"].value.startswith("threads: ")


def test_a_queue_counts_what_it_has_done(queue: Queue) -> None:
    """Figures come in one call."""
    stats = queue.stats()
    assert set(stats) == {
        "enters",
        "operations",
        "quarantined_batches",
        "quarantined_bytes",
        "max_quarantine_bytes",
        "registered_bytes",
        "leaked_operations",
        "unregistered",
    }
