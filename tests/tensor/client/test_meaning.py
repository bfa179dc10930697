"""What a name means: as a whole, also while other threads look it up again."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from forebay.errors import StaleError
from forebay.tensor import TensorClient
from tests.tensor.shards import PATIENCE_S, serving, url_in

CONTENTS = {
    dtype: np.full((8, 4), number, dtype) for number, dtype in enumerate(("i4", "f4", ">u4"), 3)
}
"""As many bytes each, which no dtype but their own takes for their number."""

REPLACEMENTS = 60


@pytest.mark.parametrize("fabric", ["stream", "auto"], indirect=True)
def test_threads_never_see_a_part_of_another_meaning(tmp_path: Path) -> None:
    """Rows are of the dtype that they were published with, or the handle is stale."""
    numbers = {np.dtype(dtype): content[0, 0] for dtype, content in CONTENTS.items()}
    with (
        serving(tmp_path, {"table": CONTENTS["i4"]}) as [server],
        TensorClient(url_in(tmp_path), shards=1) as client,
        ThreadPoolExecutor(3) as threads,
    ):
        ref = client.tensor("table")
        replaced, seen = threading.Event(), threading.Event()

        def pull() -> tuple[int, int]:
            whole = stale = 0
            while not (replaced.is_set() and whole):
                try:
                    rows = client.pull(ref)
                except StaleError:
                    stale += 1
                    seen.set()
                    continue
                assert rows.shape == (8, 4)
                assert (rows == numbers[rows.dtype]).all()
                whole += 1
            return whole, stale

        pulling = [threads.submit(pull) for _ in range(3)]
        try:
            for number in range(REPLACEMENTS):
                server.publish("table", list(CONTENTS.values())[number % 3])
                seen.wait(PATIENCE_S)
                seen.clear()
        finally:
            replaced.set()
        counts = [each.result(PATIENCE_S) for each in pulling]
        assert sum(stale for _, stale in counts) > 0


def test_a_reference_goes_on_meaning_its_name(tmp_path: Path) -> None:
    """Its dtype and shape are those that were looked up last."""
    with (
        serving(tmp_path, {"table": CONTENTS["i4"]}) as [server],
        TensorClient(url_in(tmp_path), shards=1) as client,
    ):
        ref = client.tensor("table")
        assert (ref.dtype, ref.shape, ref.row_bytes) == (np.dtype("i4"), (8, 4), 16)
        server.publish("table", np.zeros((5, 2, 3), "f8"))
        with pytest.raises(StaleError):
            client.pull(ref)
        assert (ref.dtype, ref.shape, ref.row_bytes) == (np.dtype("i4"), (8, 4), 16)
        assert client.pull(ref).shape == (5, 2, 3)
        assert (ref.dtype, ref.shape, ref.row_bytes) == (np.dtype("f8"), (5, 2, 3), 48)
        assert repr(ref) == "<TensorRef 'table': float64 of shape (5, 2, 3)>"
        assert client.tensor("table") is ref
