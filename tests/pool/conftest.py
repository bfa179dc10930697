from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import forebay
from tests.pool.shared.lender import Lending


@pytest.fixture(params=["own", "lent"])
def pool(request: pytest.FixtureRequest, path: Path) -> Iterator[Any]:
    """A pool of two services, closed at the end: a program's own, and one that is lent to it."""
    if request.param == "own":
        with forebay.ServicePool(max_size=2, name="test") as made:
            yield made
        return
    with Lending(path, "--max-size", "2"), forebay.SharedPool(path) as lent:
        yield lent


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a lender of a shared pool may listen."""
    return tmp_path / "lent" / "pool.sock"


@pytest.fixture
def lending(path: Path) -> Iterator[Lending]:
    """A lender of at most two services."""
    with Lending(path, "--max-size", "2") as made:
        yield made
