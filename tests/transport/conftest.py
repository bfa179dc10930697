"""Loops and addresses that tests of the transport run on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.loops import run

__all__ = ["run"]


@pytest.fixture(params=["tcp", "unix"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a listener may listen."""
    return "tcp://127.0.0.1:0" if request.param == "tcp" else f"unix://{tmp_path}/own/a.sock"
