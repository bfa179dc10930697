from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import forebay
from tests.pool.shared.lender import Lending


@pytest.fixture
def pool() -> Iterator[forebay.ServicePool]:
    """A pool of two services, closed at the end."""
    with forebay.ServicePool(max_size=2, name="test") as made:
        yield made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a lender of a shared pool may listen."""
    return tmp_path / "lent" / "pool.sock"


@pytest.fixture
def lending(path: Path) -> Iterator[Lending]:
    """A lender of at most two services."""
    with Lending(path, "--max-size", "2") as made:
        yield made
