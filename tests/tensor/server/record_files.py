"""Record files that tables are served from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from forebay.blockio import RecordFile
from tests.tensor.contents import Array

PAGES = np.dtype([("number", "<u8"), ("rest", "u1", (4088,))])


def write(path: Path, content: Array, **options: Any) -> Path:
    """Make a file of these rows."""
    dtype = np.dtype((content.dtype, content.shape[1:]))
    with RecordFile(path, dtype, mode="a", **options) as records:
        records.append(content)
    return path


def pages(count: int) -> Array:
    """Rows of a page, each with its number and something of its own."""
    made = np.zeros(count, PAGES)
    made["number"] = np.arange(count)
    made["rest"] = np.random.default_rng(7).integers(0, 256, (count, 4088), "u1")
    return made
