"""What a reader sees while a push is under way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from forebay.tensor import TensorClient
from tests.tensor.faces import FACES, face_of
from tests.tensor.shards import PATIENCE_S, serving, url_in

pytestmark = pytest.mark.parametrize("fabric", ["auto", "stream"], indirect=True)

ROWS, COLUMNS = 1024, 1024
PIECE_ROWS = 16
PIECE_BYTES = PIECE_ROWS * COLUMNS * 4
PULLS = 40


@contextmanager
def pushing(url: str, op: Any, piece_bytes: int) -> Iterator[None]:
    """Have a thread push all rows again and again: the n-th push leaves n in each of them."""
    over = Event()

    def push() -> None:
        with TensorClient(url, piece_bytes=piece_bytes) as client:
            count = 0
            while not over.is_set():
                count += 1
                value = count if op == "set" else 1
                client.push("table", None, np.full((ROWS, COLUMNS), value, "f4"), op)

    with ThreadPoolExecutor(1) as thread:
        pushed = thread.submit(push)
        try:
            yield
        finally:
            over.set()
        pushed.result(PATIENCE_S)


def looks(face: Any, rows: Any) -> Iterator[Any]:
    """Pull again and again; what each row held, which is whole and never older than before."""
    versions, before = np.zeros(1, np.uint64), 0
    out = np.empty((ROWS, COLUMNS), "f4")
    seen = np.zeros(ROWS)
    while True:
        face.call("pull_many", [("table", rows, out)], versions=versions)
        assert (out == out[:, :1]).all(), "a row is old or new"
        assert int(versions[0]) >= before, "versions do not go back"
        assert (out[:, 0] >= seen).all(), "rows do not go back"
        before, seen = int(versions[0]), out[:, 0].copy()
        yield seen


@pytest.mark.parametrize("op", ["set", "add"])
@pytest.mark.parametrize("face_name", [name for name in FACES if name != "futures"])
def test_a_push_in_pieces_is_seen_piece_by_piece(tmp_path: Path, op: str, face_name: str) -> None:
    """A pull is of one version: some pieces are of the new push, each of them whole."""
    with (
        serving(tmp_path, {"table": np.zeros((ROWS, COLUMNS), "f4")}),
        pushing(url_in(tmp_path).format(shard=0), op, PIECE_BYTES),
        face_of(face_name, url_in(tmp_path)) as face,
    ):
        end, halves = time.monotonic() + PATIENCE_S, 0
        for count, seen in enumerate(looks(face, None)):
            pieces = seen.reshape(-1, PIECE_ROWS)
            assert (pieces == pieces[:, :1]).all(), "a piece is old or new"
            assert seen.max() - seen.min() <= 1, "a push ends before the next begins"
            halves += int(seen.max() > seen.min())
            if count >= PULLS and halves:
                break
            assert time.monotonic() < end, "no push was seen under way"


@pytest.mark.parametrize("op", ["set", "add"])
def test_a_push_of_one_request_is_seen_whole(tmp_path: Path, op: str) -> None:
    """No reader sees half of it, also not of rows in any order."""
    rows = np.random.default_rng(1).permutation(ROWS)
    with (
        serving(tmp_path, {"table": np.zeros((ROWS, COLUMNS), "f4")}),
        pushing(url_in(tmp_path).format(shard=0), op, ROWS * COLUMNS * 4),
        face_of("blocking", url_in(tmp_path)) as face,
    ):
        for count, seen in enumerate(looks(face, rows)):
            assert seen.max() == seen.min(), "all rows are of one push"
            if count >= PULLS and seen.max() >= 2:
                break
