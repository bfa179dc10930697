from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import forebay
from tests.pool.shared.lender import Lending

PoolOf = Callable[..., contextlib.AbstractContextManager[Any]]


@pytest.fixture(params=["own", "lent"])
def pool_of(request: pytest.FixtureRequest, path: Path) -> PoolOf:
    """Makes pools with settings: a program's own, and one that is lent to it."""

    @contextlib.contextmanager
    def made(**settings: Any) -> Iterator[Any]:
        if request.param == "own":
            with forebay.ServicePool(name="test", **settings) as pool:
                yield pool
            return
        with Lending(path, settings=settings), forebay.SharedPool(path) as pool:
            yield pool

    return made


def start_is_under_way(pool: Any) -> bool:
    """Whether a caller has begun a start; of a lent service, once it has read that it may."""
    owner = pool.link() if isinstance(pool, forebay.SharedPool) else pool
    return bool(owner._records)


@pytest.fixture
def pool(pool_of: PoolOf) -> Iterator[Any]:
    """A pool of two services, closed at the end."""
    with pool_of(max_size=2) as made:
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
