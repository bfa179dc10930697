"""State that leaks from one lease to the next is found, and the service is set aside."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import forebay
from tests.pool.conftest import PoolOf
from tests.pool.processes import eventually
from tests.pool.services import Echo, Leaky


@pytest.fixture
def pool(pool_of: PoolOf) -> Iterator[Any]:
    with pool_of(max_size=1, canary_every=2) as pool:
        yield pool


@pytest.mark.parametrize(
    ("leak", "named"),
    [
        (lambda leaky: leaky.keep("x"), "attribute 'kept'"),
        (lambda leaky: leaky.visit("x"), "module variable 'VISITORS'"),
        (lambda leaky: leaky.wander(), "working directory"),
        (lambda leaky: leaky.open_file(), "open descriptors"),
    ],
)
def test_what_a_lease_left_is_named_and_its_service_set_aside(
    pool: forebay.ServicePool,
    leak: Callable[[Any], None],
    named: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    pids = []
    for turn in range(3):
        with pool.acquire(Leaky) as leaky:
            pids.append(leaky.lease.pid)
            if turn == 1:
                leak(leaky)
    assert pids[0] == pids[1] != pids[2]
    assert eventually(lambda: pool.stats()["deaths"] == {"contaminated": 1})
    [finding] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert named in finding.getMessage()
    assert f"process {pids[0]}" in finding.getMessage()


def test_what_is_reset_or_a_cache_is_no_finding(pool: forebay.ServicePool) -> None:
    pids = set()
    for turn in range(5):
        with pool.acquire(Leaky) as leaky:
            pids.add(leaky.lease.pid)
            leaky.remember(f"secret {turn}")
    assert len(pids) == 1


def test_a_stateless_service_is_looked_at_too(pool: forebay.ServicePool) -> None:
    pids = set()
    for turn in range(5):
        with pool.acquire(Echo) as echo:
            pids.add(echo.lease.pid)
            assert echo.add(turn) == turn
    assert len(pids) == 1
    assert pool.stats()["resets"] == 2


def test_a_null_pool_keeps_nothing() -> None:
    with forebay.NullPool(max_size=1) as pool:
        pids = []
        for _ in range(3):
            with pool.acquire(Echo) as echo:
                pids.append(echo.lease.pid)
        assert len(set(pids)) == 3
        assert eventually(lambda: pool.stats()["deaths"] == {"discarded": 3})
        assert pool.stats()["live"] == 0
