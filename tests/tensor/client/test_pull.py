"""Pulls: every dtype, every way to say rows, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay.errors import ConfigError, OutOfRangeError
from forebay.memory import Arena
from forebay.tensor import TensorClient
from tests.tensor.conftest import TABLE
from tests.tensor.contents import ASKED, CONTENTS, picked, same
from tests.tensor.faces import FACES, Face, face_of
from tests.tensor.shards import serving, url_in

pytestmark = pytest.mark.parametrize("fabric", ["auto", "stream"], indirect=True)


@pytest.mark.parametrize("face_name", FACES)
def test_every_dtype_and_every_way_to_say_rows(tmp_path: Path, shards: int, face_name: str) -> None:
    """What arrives is what numpy would have picked, byte for byte."""
    with (
        serving(tmp_path, CONTENTS, shards),
        face_of(face_name, url_in(tmp_path), shards=shards) as face,
    ):
        for name, content in CONTENTS.items():
            for word, rows in ASKED.items():
                if len(content) or word in ("all", "none", "no rows", "open slice"):
                    found = face.call("pull", name, rows)
                    assert same(found, picked(content, rows)), (name, word)


@pytest.mark.parametrize("rows", [slice(3, 60), [5, 99, 0, 5, -3], 7, np.array([[1, 2], [3, 4]])])
def test_out_is_filled_and_returned(face: Face, rows: Any) -> None:
    """Memory that is there is used; no other is made."""
    wanted = picked(TABLE, rows)
    out = np.full(wanted.shape, -1, "f4")
    assert face.call("pull", "table", rows, out) is out
    assert same(out, wanted)


def test_results_are_made_in_the_arena(tmp_path: Path, shards: int, servers: Any) -> None:
    """A result keeps its block; with its last view the memory goes back."""
    with (
        Arena("16MiB") as arena,
        TensorClient(url_in(tmp_path), shards=shards, arena=arena) as client,
    ):
        found = client.pull("table", slice(10, 90))
        assert same(found, TABLE[10:90])
        assert arena.stats()["live_bytes"] >= found.nbytes
        view = found[3:4]
        del found
        assert same(view, TABLE[13:14])
        del view
        assert arena.stats()["live_bytes"] == 0


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.zeros((5, 10)), "dtype float64"),
        (np.zeros((4, 10), "f4"), r"shape \(4, 10\); the rows have \(5, 10\)"),
        (np.zeros((5, 20), "f4")[:, ::2], "not contiguous"),
        (np.zeros((5, 10), ">f4"), "dtype >f4"),
        (np.broadcast_to(np.float32(0), (5, 10)), "not contiguous"),
        (bytearray(200), "give a numpy array"),
    ],
)
def test_an_out_that_does_not_fit_is_refused(face: Face, out: Any, message: str) -> None:
    """Before anything is asked, with what would fit."""
    with pytest.raises(ConfigError, match=message):
        face.call("pull", "table", slice(0, 5), out)
    assert not np.asarray(out).any()


def test_a_read_only_out_is_refused(face: Face) -> None:
    """Memory that was given away for reading is not written."""
    out = np.zeros((5, 10), "f4")
    out.flags.writeable = False
    with pytest.raises(ConfigError, match="not writable"):
        face.call("pull", "table", slice(0, 5), out)
    assert not out.any()


@pytest.mark.parametrize("kind", ["writable", "contiguous"])
def test_an_out_for_a_whole_tensor_is_refused_by_name(face: Face, kind: str) -> None:
    """Also where nothing is looked at in Python, in every kind of call."""
    out = np.zeros((100, 10), "f4") if kind == "writable" else np.zeros((10, 100), "f4").T
    out.flags.writeable = kind != "writable"
    fits = np.zeros((100, 10), "f4")
    for method, arguments in (
        ("pull", ("table", None, out)),
        ("pull_many", ([("table", None, fits), ("table", None, out)],)),
    ):
        with pytest.raises(ConfigError, match=f"tensor 'table': out is not {kind}"):
            face.call(method, *arguments)
    assert not out.any()
    for refused in (
        lambda: list(face.client.pull_each([("table", None, out)])),
        lambda: face.client.plan([("table", None, out)]),
    ):
        with pytest.raises(ConfigError, match=f"tensor 'table': out is not {kind}"):
            refused()
    assert same(face.call("pull", "table"), TABLE)


@pytest.mark.parametrize("rows", [100, -101, [3, 100], [0, -101], np.array([2**64 - 1], "u8")])
def test_rows_outside_are_refused_by_name(face: Face, rows: Any) -> None:
    """The message names the row, the tensor and what there is."""
    with pytest.raises(OutOfRangeError, match="outside of tensor 'table', which has 100 rows"):
        face.call("pull", "table", rows)
    with pytest.raises(IndexError):
        face.call("pull", "table", rows)


@pytest.mark.parametrize(
    "rows", [np.ones(100, bool), [0.5], "3", [[1, 2], [3]], (slice(0, 1), 2), {"a": 1}]
)
def test_what_is_no_row_is_refused(face: Face, rows: Any) -> None:
    """A mask, a number with a fraction, a text: told before anything is asked."""
    with pytest.raises(ConfigError, match="tensor 'table'"):
        face.call("pull", "table", rows)


def test_an_unknown_name_comes_with_the_nearest(face: Face) -> None:
    """A slip of the pen is told with what was meant, and with the server."""
    with pytest.raises(ConfigError, match=r"no tensor 'tabel' at unix://.*did you mean 'table'"):
        face.call("pull", "tabel")
    with pytest.raises(ConfigError, match="names no tensor"):
        face.call("pull", 5)


def test_large_pulls_go_in_pieces(tmp_path: Path) -> None:
    """A tensor of many pieces arrives whole, by slices and by rows."""
    content = np.random.default_rng(1).integers(0, 255, (300, 40_000), "u1")
    with (
        serving(tmp_path, {"large": content}),
        TensorClient(url_in(tmp_path), piece_bytes="64KiB", slots=3) as client,
    ):
        assert same(client.pull("large"), content)
        rows = np.random.default_rng(2).integers(0, 300, 500)
        assert same(client.pull("large", rows), content[rows])


def test_a_result_stays_what_it_was(client: TensorClient) -> None:
    """A thousand further pulls and as many pushes write nowhere but in memory of their own."""
    with Arena("64MiB") as arena, TensorClient(client.urls, arena=arena) as other:
        kept = [other.pull("table"), other.pull("table", [7, 3]), client.pull("table", 5)]
        for number in range(1000):
            one = other if number % 2 else client
            one.push("table", number % 100, number)
            assert (one.pull("table", number % 100) == number).all()
        assert same(client.pull("table")[:, 0], np.arange(900, 1000, dtype="f4"))
        for found, rows in zip(kept, (slice(None), [7, 3], 5), strict=True):
            assert same(found, TABLE[rows])
        del found, kept
