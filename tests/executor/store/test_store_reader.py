"""Reading the store from the server's process."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay._core import StoreReader
from forebay.errors import BrokenError, ConfigError
from tests.executor.store.test_admin import FIRST, Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_what_is_not_there_is_none(store: Store) -> None:
    """A request may be gone by the time that it is looked at."""
    reader = StoreReader(str(store.directory))
    assert reader.newest() is None
    assert reader.get(FIRST) is None
    assert reader.arguments(FIRST) is None
    assert reader.options(FIRST) is None
    assert reader.runs(FIRST, 10) == []
    assert reader.page(10) == ([], None)


def test_words_and_numbers_are_as_they_were_stored(store: Store) -> None:
    """A listing needs no table of numbers."""
    number = store.add(status=5, lane=2, ended_at=7, failure="{}")
    found = StoreReader(str(store.directory)).get(number)
    assert found is not None
    assert (found["id"], found["status"], found["lane"]) == (number, "dead", "async")
    assert (found["ended_at"], found["claimed_at"], found["failure"]) == (7, None, "{}")


def test_a_beginning_of_no_id_is_told_from_one_that_nothing_has(store: Store) -> None:
    """A typo is refused in other words than a request that is gone."""
    reader = StoreReader(str(store.directory))
    assert reader.beginning_with("zz", 5) == []
    assert reader.beginning_with("z z", 5) is None


def test_a_word_of_another_kind_is_refused(store: Store) -> None:
    """A mistake in a filter is told as one."""
    reader = StoreReader(str(store.directory))
    with pytest.raises(ConfigError, match="unknown status"):
        reader.page(1, status=["ended"])
    with pytest.raises(ConfigError, match="unknown lane"):
        reader.page(1, lane="fast")


def test_a_directory_without_a_store_is_an_error(tmp_path: Path) -> None:
    """A wrong path is told, and no empty database is made there."""
    with pytest.raises(BrokenError, match="cannot open the database"):
        StoreReader(str(tmp_path))
    assert not list(tmp_path.iterdir())
