"""Any sequence of pulls and pushes, held against numpy: a model of twenty lines."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tensor.contents import same
from tests.tensor.faces import FACES, face_of
from tests.tensor.shards import serving, url_in

pytestmark = pytest.mark.parametrize("fabric", ["auto", "stream"], indirect=True)

ROWS_MAX = 23
DTYPES = ("f4", "i2", "c16", "u8", "f2")
NAMES = ("one", "two")


@st.composite
def rows(draw: st.DrawFn, count: int) -> Any:
    """A way to say rows of a tensor that has so many."""
    if draw(st.booleans()) or not count:
        ends = st.none() | st.integers(-count - 3, count + 3)
        step = st.none() | st.sampled_from((1, 2, -1, -3))
        return slice(draw(ends), draw(ends), draw(step))
    row = st.integers(-count, count - 1)
    some = st.lists(row, max_size=30).map(lambda found: np.array(found, np.int64))
    return draw(some | row)


@st.composite
def steps(draw: st.DrawFn) -> Any:
    """Tensors, and what happens to them."""
    tensors = {}
    for name in NAMES:
        shape = (draw(st.integers(0, ROWS_MAX)), *draw(st.lists(st.integers(1, 4), max_size=2)))
        content = np.arange(np.prod(shape, dtype=int)) % 50
        tensors[name] = content.astype(draw(st.sampled_from(DTYPES))).reshape(shape)
    acts = []
    for _ in range(draw(st.integers(1, 12))):
        name = draw(st.sampled_from(NAMES))
        said = draw(rows(len(tensors[name])))
        acts.append((draw(st.sampled_from(("pull", "set", "add"))), name, said))
    return tensors, acts


@pytest.mark.parametrize("face_name", FACES)
@settings(max_examples=25, deadline=None)
@given(steps(), st.integers(1, 4), st.integers(0, 3))
def test_every_sequence_leaves_what_numpy_would(
    face_name: str, given_steps: Any, shards: int, piece_step: int
) -> None:
    """Over any number of shards and in pieces of any size, it is one array."""
    tensors, acts = given_steps
    model = {name: content.copy() for name, content in tensors.items()}
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder), tensors, shards),
        face_of(
            face_name, url_in(Path(folder)), shards=shards, piece_bytes=64 << piece_step, slots=2
        ) as face,
    ):
        for number, (act, name, said) in enumerate(acts):
            held = model[name]
            if act == "pull":
                assert same(face.call("pull", name, said), np.asarray(held[said], held.dtype))
                continue
            count = np.arange(len(held))[said]
            values = ((np.arange(np.size(count)) + number) % 7).astype(held.dtype)
            shape = np.shape(count) + held.shape[1:]
            tall = values.reshape(np.shape(count) + (1,) * (len(shape) - np.ndim(count)))
            spread = np.broadcast_to(tall, shape).copy()
            face.call("push", name, said, spread, act)
            if act == "add":
                np.add.at(held, count, spread)
            else:
                for row, value in zip(
                    np.ravel(count), spread.reshape(-1, *held.shape[1:]), strict=True
                ):
                    held[row] = value
        for name, held in model.items():
            assert same(face.call("pull", name), held)
