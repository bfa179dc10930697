"""The blocks that the tests of `forebay.blockio` read."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BLOCK_BYTES = 4096
BLOCKS = 300
"""More than the default queue has in flight at once."""

Blocks = npt.NDArray[np.uint8]


def content() -> Blocks:
    """What the file holds, one row for each block."""
    generator = np.random.default_rng(7)
    return generator.integers(0, 256, (BLOCKS, BLOCK_BYTES), np.uint8)


def shuffled(count: int = BLOCKS) -> npt.NDArray[np.uint64]:
    """Offsets of different blocks, in an order of their own."""
    order = np.random.default_rng(8).permutation(BLOCKS)[:count]
    return order.astype(np.uint64) * np.uint64(BLOCK_BYTES)
