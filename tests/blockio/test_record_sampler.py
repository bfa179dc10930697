"""Sampling: the same batches with and without prefetching, whatever happens in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forebay.blockio.records.file import RecordFile
from forebay.errors import ConfigError
from forebay.memory import Arena
from tests.blockio.record_files import PLAIN, everything, numbered, whole

pytestmark = pytest.mark.usefixtures("default_on_each_engine")

GENERATORS: list[Callable[[int], Any]] = [
    np.random.PCG64,
    np.random.MT19937,
    np.random.Philox,
    np.random.SFC64,
]


@pytest.fixture
def file(tmp_path: Path) -> Iterator[RecordFile]:
    with RecordFile(tmp_path / "test.fbr", PLAIN, mode="a", sync=False) as made:
        made.append(numbered(0, 1000))
        yield made


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("sample"), st.integers(1, 20)),
        st.tuples(st.just("sample"), st.just(8)),
        st.tuples(st.just("append"), st.integers(1, 3)),
        st.tuples(st.just("use rng"), st.integers(1, 3)),
        st.tuples(st.just("other rng"), st.integers(1, 3)),
    ),
    max_size=30,
)


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # the queue serves all examples
)
@given(moves=MOVES, generator=st.sampled_from(GENERATORS))
def test_prefetching_changes_no_batch(
    tmp_path_factory: pytest.TempPathFactory,
    moves: list[tuple[str, int]],
    generator: Callable[[int], Any],
) -> None:
    """A run could not be repeated with another prefetch, or after a change that has no effect."""
    told: list[list[Any]] = []
    directory = tmp_path_factory.mktemp("prefetch")
    for prefetch in (0, 1, 2, 5):
        rng, other = np.random.Generator(generator(7)), np.random.default_rng(3)
        said: list[Any] = []
        path = directory / f"{prefetch}.fbr"
        with RecordFile(path, PLAIN, mode="a", sync=False) as file:
            file.append(numbered(0, 100))
            for move, n in moves:
                if move == "sample":
                    said.append(file.sample(n, rng=rng, prefetch=prefetch)["number"].tolist())
                elif move == "append":
                    file.append(numbered(file.appended, n))
                elif move == "use rng":
                    said.append(rng.random(n).tolist())
                else:
                    said.append(file.sample(n, rng=other, prefetch=prefetch)["number"].tolist())
        said.append(rng.random())
        told.append(said)
    assert told == [told[0]] * 4


def test_a_sample_is_what_the_generator_says(file: RecordFile) -> None:
    """Uniform, with replacement, and the draws that anybody can repeat without the file."""
    drawn = np.random.default_rng(11)
    rng = np.random.default_rng(11)
    for n in (1, 64, 64, 64, 256, 0):
        expected = drawn.integers(0, 1000, n)
        batch = file.sample(n, rng=rng)
        assert batch["number"].tolist() == expected.tolist()
        assert whole(batch)
    counts = np.bincount(
        np.concatenate([file.sample(1000)["number"] for _ in range(100)]).astype(int),
        minlength=1000,
    )
    assert counts.min() > 50  # 100 each, give or take
    assert counts.max() < 170


def test_batches_are_read_ahead(file: RecordFile) -> None:
    """The disk would be idle while the caller computes."""
    rng = np.random.default_rng(1)
    chain = file._sampler._chain
    for _ in range(5):
        file.sample(32, rng=rng)
        assert len(chain) == 2
    ahead = [one.read for one in chain]
    file.sample(32, rng=rng)
    assert chain[0].read is ahead[1]
    file.sample(32, rng=rng, prefetch=0)
    assert len(chain) == 0


def test_who_appends_between_samples_reads_nothing_in_vain(file: RecordFile) -> None:
    """Three times the reads for the same batches."""
    rng = np.random.default_rng(1)
    chain = file._sampler._chain
    file.sample(32, rng=rng)
    for number in range(1000, 1010):
        file.append(numbered(number, 1))
        file.sample(32, rng=rng)
        assert len(chain) == 0
    file.sample(32, rng=rng)  # goes on where the one before it ended
    assert len(chain) == 2


def test_a_full_arena_costs_the_prefetching_and_no_sample(tmp_path: Path) -> None:
    """Who holds batches must get the next one as long as there is room for it."""
    with (
        Arena("4MiB", name="small") as arena,
        RecordFile(tmp_path / "test.fbr", "S4096", mode="a", arena=arena) as file,
    ):
        file.append(np.zeros(10, "S4096"))
        rng = np.random.default_rng(1)
        held = [file.sample(100, rng=rng) for _ in range(9)]
        assert len(held) == 9
        first = file.sample(10, rng=rng)
        assert first.shape == (10,)


def test_an_empty_window_and_wrong_arguments_are_refused(tmp_path: Path) -> None:
    """By name, and before anything is drawn."""
    with RecordFile(tmp_path / "test.fbr", PLAIN, mode="a") as file:
        with pytest.raises(ConfigError, match="has no records to draw from; append some"):
            file.sample(3)
        file.append(numbered(0, 3))
        for arguments, told in (
            ({"n": -1}, "n is -1; give 0 or more"),
            ({"n": 2.5}, "n is 2.5; give a whole number"),
            ({"n": 1, "prefetch": -1}, "prefetch is -1"),
            ({"n": 1, "rng": 7}, "give a generator, such as"),
            ({"n": 1, "rng": np.random.RandomState(1)}, "give a generator, such as"),
        ):
            with pytest.raises(ConfigError, match=told):
                file.sample(**arguments)
        with pytest.raises(ConfigError, match="n is 0; give 1 or more"):
            file.batches(0)


@pytest.mark.parametrize("n", [1, 7, 250, 1000, 4000])
def test_an_epoch_has_each_record_once(file: RecordFile, n: int) -> None:
    """Some would be trained on twice, and others never."""
    orders = []
    for shuffle in (True, True, False):
        seen = [batch["number"] for batch in file.batches(n, epochs=1, shuffle=shuffle)]
        assert [len(batch) for batch in seen[:-1]] == [n] * (len(seen) - 1)
        orders.append(np.concatenate(seen).tolist())
        assert sorted(orders[-1]) == list(range(1000))
    assert orders[0] != orders[1]
    assert orders[2] == list(range(1000))


def test_epochs_repeat_with_a_generator(file: RecordFile) -> None:
    """And go on for ever where nobody says how many."""

    def numbers(rng: np.random.Generator, epochs: int | None) -> list[int]:
        found = []
        for batch in file.batches(300, rng=rng, epochs=epochs):
            found += batch["number"].tolist()
            if len(found) == 3000:
                break
        return found

    first = numbers(np.random.default_rng(5), 3)
    assert numbers(np.random.default_rng(5), None) == first
    assert first[:1000] != first[1000:2000]
    assert list(file.batches(10, epochs=0)) == []


def test_an_epoch_begins_with_what_was_appended_before_it(file: RecordFile) -> None:
    """Records that came during an epoch come in one of the next."""
    sizes = []
    for batch in file.batches(1000, epochs=5):
        sizes.append(len(batch))
        if len(sizes) == 1:
            file.append(numbered(1000, 500))
    assert sizes == [1000, 1000, 1000, 1000, 500, 1000, 500]  # two were begun by then
    assert everything(file)["number"].tolist() == list(range(1500))
