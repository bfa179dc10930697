"""Reading the store's tables from the server's process."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from forebay._core import StoreReader
from forebay.errors import BrokenError


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory with a table of each kind of value."""
    database = sqlite3.connect(tmp_path / "requests.db")
    with database:
        database.execute("CREATE TABLE kinds(value)")
        rows = [(None,), (-7,), (0.5,), ("text",), (b"\x00\xff",)]
        database.executemany("INSERT INTO kinds VALUES(?)", rows)
    database.close()
    return tmp_path


def test_every_kind_of_value_comes_and_goes(state: Path):
    """Listings show what was stored, and filters find it."""
    reader = StoreReader(str(state))
    assert reader.query("SELECT value FROM kinds", [], 10) == [
        (None,),
        (-7,),
        (0.5,),
        ("text",),
        (b"\x00\xff",),
    ]
    assert reader.query("SELECT ?, ?, ?", [b"\x00", "a", None], 1) == [(b"\x00", "a", None)]


def test_no_more_rows_come_than_were_asked_for(state: Path):
    """A listing of a large store stays small."""
    assert len(StoreReader(str(state)).query("SELECT value FROM kinds", [], 2)) == 2


def test_it_writes_nothing(state: Path):
    """There is one writer."""
    with pytest.raises(BrokenError, match="readonly"):
        StoreReader(str(state)).query("DELETE FROM kinds", [], 1)


def test_a_directory_without_a_store_is_an_error(tmp_path: Path):
    """A wrong path is told, and no empty database is made there."""
    with pytest.raises(BrokenError, match="cannot open the database"):
        StoreReader(str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_value_of_another_kind_is_refused(state: Path):
    """A mistake in a filter is told as one."""
    with pytest.raises(TypeError, match="not list"):
        StoreReader(str(state)).query("SELECT ?", [[1]], 1)  # type: ignore[list-item]
