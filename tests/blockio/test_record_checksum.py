"""Checksums of records: CRC-32C, of each record without its padding."""

from __future__ import annotations

import numpy as np
import pytest

from forebay import _core
from forebay.errors import ConfigError


def test_the_checksum_is_the_one_that_others_compute() -> None:
    """A file that another program reads must be one that it can verify."""
    sums = _core.record_checksums(b"123456789", 9, 9)
    assert sums == (0xE3069283).to_bytes(4, "little")


def test_each_record_is_summed_without_what_follows_it() -> None:
    """Padding and the checksum itself lie behind each record, and are none of its bytes."""
    records = np.random.default_rng(1).integers(0, 256, (100, 64), np.uint8)
    sums = np.frombuffer(_core.record_checksums(records.data, 60, 64), "<u4")
    assert len(sums) == 100
    records[:, 60:] = 0
    assert (np.frombuffer(_core.record_checksums(records.data, 60, 64), "<u4") == sums).all()
    records[7, 59] ^= 1
    changed = np.frombuffer(_core.record_checksums(records.data, 60, 64), "<u4")
    assert np.flatnonzero(changed != sums).tolist() == [7]
    alone = [_core.record_checksums(bytes(row[:60]), 60, 60) for row in records]
    assert b"".join(alone) == changed.tobytes()


@pytest.mark.parametrize(("record_bytes", "stride_bytes"), [(0, 8), (9, 8)])
def test_a_record_that_fits_no_stride_is_refused(record_bytes: int, stride_bytes: int) -> None:
    """Rather than sum the neighbours."""
    with pytest.raises(ConfigError, match="record_bytes is"):
        _core.record_checksums(bytes(64), record_bytes, stride_bytes)
