"""What sender and receiver of a message copy in user space, counted from outside of the product."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.preloaded import compiled
from tests.transport import copying

SOURCE = Path(__file__).with_name("copying.c")
COPIED_BYTES_MAX = 64 << 10
"""Longer frames are lent."""
STRAY = 512
"""Bytes per message that may be copied besides: a table that grows, a name."""


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the counter."""
    return compiled(SOURCE, tmp_path_factory.mktemp("copying"))


@pytest.mark.needs("gcc")
@pytest.mark.parametrize(
    ("scheme", "frames_are", "short", "long"),
    [
        # Short: out of what was received, and into a bytes object. A ring is one more copy on each
        # side, TLS two of each byte and of the rest of its record.
        ("tcp", "bytes", 2, 0),
        ("tcp", "arena", 2, 0),
        ("unix", "bytes", 2, 0),
        ("tls", "bytes", 6.7, 4.2),
        ("shm", "bytes", 4, 1),
        ("shm", "arena", 4, 0),
    ],
)
def test_each_byte_is_copied_as_often_as_is_said(
    counting: Path, tmp_path: Path, scheme: str, frames_are: str, short: float, long: float
) -> None:
    """docs/concepts/transport/messages.md "Copies" and shared_memory.md say how often."""
    where = f"{tmp_path}/own/a.sock" if scheme in ("unix", "shm") else "localhost:0"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            copying.__name__,
            f"{scheme}://{where}",
            frames_are,
            tmp_path / "pki",
        ],
        env={**os.environ, "LD_PRELOAD": str(counting)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    counted = {int(size): copied for size, copied in json.loads(done.stdout).items()}
    assert tuple(counted) == copying.SIZES
    for size, copied in counted.items():
        times = short if size <= COPIED_BYTES_MAX else long
        assert copied == pytest.approx(times * size, rel=0.15, abs=STRAY), f"frames of {size} bytes"
