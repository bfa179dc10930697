"""Pushes: set and add, as numpy's own indexing would have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay.errors import ConfigError, OutOfRangeError
from forebay.tensor import TensorClient
from tests.tensor.conftest import TABLE
from tests.tensor.contents import ASKED, CONTENTS, ROWS, picked, same
from tests.tensor.faces import FACES, Face, face_of
from tests.tensor.shards import serving, url_in

pytestmark = pytest.mark.parametrize("fabric", ["auto", "stream"], indirect=True)

NUMBERS = ("f4", "f2", "f8", "c8", "c16", "i1", "u2", "i8")


def positions(rows: Any, count: int) -> Any:
    """Rows as numpy's `add.at` takes them."""
    every = np.arange(count)
    return every if rows is None else every[np.array(rows, int) if isinstance(rows, list) else rows]


@pytest.mark.parametrize("face_name", FACES)
def test_add_counts_repeated_rows_as_numpy_does(
    tmp_path: Path, shards: int, face_name: str
) -> None:
    """A gradient of a row that is twice in a batch is added twice."""
    contents = {name: CONTENTS[name] for name in NUMBERS}
    with (
        serving(tmp_path, contents, shards),
        face_of(face_name, url_in(tmp_path), shards=shards) as face,
    ):
        for name, content in contents.items():
            expected = content.copy()
            for rows in ASKED.values():
                at = positions(rows, ROWS)
                values = (np.arange(np.size(at)) % 3 + 1).reshape(np.shape(at))
                shape = picked(content, rows).shape
                spread = values.reshape(values.shape + (1,) * (len(shape) - values.ndim))
                given = np.broadcast_to(spread, shape).astype(content.dtype)
                np.add.at(expected, at, given)
                face.call("push", name, rows, given, "add")
            assert same(face.call("pull", name), expected), name


@pytest.mark.parametrize("face_name", FACES)
def test_set_replaces_rows_of_every_dtype(tmp_path: Path, shards: int, face_name: str) -> None:
    """What was pushed is what is pulled, byte for byte; the last of two to one row stays."""
    with (
        serving(tmp_path, CONTENTS, shards),
        face_of(face_name, url_in(tmp_path), shards=shards) as face,
    ):
        for name, content in CONTENTS.items():
            expected = content.copy()
            backwards = content[::-1].copy()
            rows = [0, -1, 4, 4] if len(content) else []
            given = picked(backwards, rows)
            for row, value in zip(rows, given, strict=True):
                expected[row] = value
            face.call("push", name, rows, given)
            assert same(face.call("pull", name), expected), name
            face.call("push", name, None, backwards)
            assert same(face.call("pull", name), backwards), name


def test_values_broadcast_as_in_numpy(face: Face) -> None:
    """A number for all rows, a row for several."""
    expected = TABLE.copy()
    expected[20:80] = 7
    face.call("push", "table", slice(20, 80), 7)
    expected[[3, 4]] += np.arange(10, dtype="f4")
    face.call("push", "table", [3, 4], np.arange(10, dtype="f4"), "add")
    expected[-1] = 0.5
    face.call("push", "table", -1, 0.5)
    assert same(face.call("pull", "table"), expected)


@pytest.mark.parametrize(
    ("values", "op", "message"),
    [
        (np.zeros((2, 10)), "set", "dtype float64.*astype"),
        (np.zeros((2, 11), "f4"), "set", "do not fit"),
        (np.zeros((3, 10), "f4"), "set", "do not fit"),
        ("water", "set", "do not fit"),
        (0, "multiply", "op is 'multiply'; give one of set, add"),
    ],
)
def test_values_that_do_not_fit_are_refused(face: Face, values: Any, op: str, message: str) -> None:
    """Nothing is converted in silence, and nothing is sent."""
    with pytest.raises(ConfigError, match=message):
        face.call("push", "table", [1, 2], values, op)
    assert same(face.call("pull", "table"), TABLE)


def test_what_cannot_be_added_is_refused(tmp_path: Path) -> None:
    """Texts and truths have no sum; the message says what goes."""
    with serving(tmp_path, CONTENTS), TensorClient(url_in(tmp_path)) as client:
        for name in ("bool", "text", "mixed", "time", "other byte order"):
            with pytest.raises(ConfigError, match="cannot be added; op='set' replaces rows"):
                client.push(name, 0, CONTENTS[name][0], "add")
            assert same(client.pull(name), CONTENTS[name])


def test_rows_outside_are_refused(face: Face) -> None:
    """A push beyond the end changes nothing."""
    with pytest.raises(OutOfRangeError, match="row 100 is outside of tensor 'table'"):
        face.call("push", "table", [5, 100], 0)
    assert same(face.call("pull", "table"), TABLE)


def test_large_pushes_go_in_pieces(tmp_path: Path) -> None:
    """Many pieces, a few slots: all of it arrives, set and added."""
    rng = np.random.default_rng(3)
    content = rng.integers(0, 1000, (300, 5_000), "i4")
    with (
        serving(tmp_path, {"large": np.zeros_like(content)}),
        TensorClient(url_in(tmp_path), piece_bytes="64KiB", slots=3) as client,
    ):
        client.push("large", None, content)
        rows = rng.integers(0, 300, 700)
        added = rng.integers(0, 9, (700, 5_000), "i4")
        client.push("large", rows, added, "add")
        np.add.at(content, rows, added)
        assert same(client.pull("large"), content)
