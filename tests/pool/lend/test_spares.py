"""Processes that a template has forked ahead."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import forebay
from tests.pool.processes import alive, children, eventually, parent, template_of
from tests.pool.services import Echo


@pytest.fixture
def pool() -> Iterator[forebay.NullPool]:
    """Each lease needs a start."""
    with forebay.NullPool(max_size=4, spares=2, name="spares") as pool:
        yield pool


def spares_of(pool: forebay.ServicePool, keeper: int) -> set[int]:
    """Children of a keeper that are services, and not the pool's."""
    known = {service[2] for service in pool.core.services()}
    return {
        child
        for child in children(keeper)
        if child not in known and Path(f"/proc/{child}/comm").read_text() == "fb service\n"
    }


def ready(pool: forebay.NullPool) -> tuple[int, set[int]]:
    """Start services until the template has its spares; the keeper, and them."""
    for _ in range(2):
        with pool.acquire(Echo) as echo:
            keeper = parent(echo.lease.pid)
            template = template_of(echo.lease.pid)
    assert alive(template)
    assert eventually(lambda: pool.stats() and len(spares_of(pool, keeper)) == 2)
    return keeper, spares_of(pool, keeper)


def test_a_start_takes_a_spare_and_another_is_forked(pool: forebay.NullPool) -> None:
    keeper, spares = ready(pool)
    with pool.acquire(Echo) as echo:
        assert echo.lease.pid in spares
        assert echo.add(1) == 1
        assert eventually(lambda: len(spares_of(pool, keeper)) == 2)
        with pytest.raises(forebay.RemoteError, match="told"):
            echo.fail("told")
        echo.say("from a spare")
        assert echo.lease.stderr == "from a spare\n"


def test_each_spare_has_its_own_directory_and_random_numbers(pool: forebay.NullPool) -> None:
    ready(pool)
    places, drawn = set(), set()
    for _ in range(4):
        with pool.acquire(Echo) as echo:
            places.add(os.path.dirname(echo.temporary_file()))
            drawn.add(echo.random())
    assert len(places) == len(drawn) == 4
    assert eventually(lambda: not any(map(os.path.exists, places)))


def test_a_spare_that_was_killed_is_passed_over(pool: forebay.NullPool) -> None:
    _, spares = ready(pool)
    for spare in spares:
        os.kill(spare, signal.SIGKILL)
    assert eventually(lambda: not any(map(alive, spares)))
    with pool.acquire(Echo) as echo:
        assert echo.lease.pid not in spares
        assert echo.add(1) == 1


def test_spares_go_with_their_template(pool: forebay.NullPool) -> None:
    _, spares = ready(pool)
    with pool.acquire(Echo) as echo:
        os.kill(template_of(echo.lease.pid), signal.SIGKILL)
        assert eventually(lambda: not any(map(alive, spares - {echo.lease.pid})))
        with pool.acquire(Echo, timeout=10) as other:
            assert other.add(1) == echo.add(1) == 1


def test_spares_go_with_their_keeper(pool: forebay.NullPool) -> None:
    keeper, spares = ready(pool)
    os.kill(keeper, signal.SIGKILL)
    assert eventually(lambda: not any(map(alive, spares)))


def test_spares_go_with_their_pool() -> None:
    pool = forebay.NullPool(max_size=4, spares=2)
    _, spares = ready(pool)
    pool.close()
    assert not any(map(alive, spares))


def test_a_template_of_one_service_has_no_spare() -> None:
    with forebay.ServicePool(max_size=2, spares=1) as pool, pool.acquire(Echo) as echo:
        keeper = parent(echo.lease.pid)
        threading.Event().wait(0.1)  # longer than a spare is waited for
        assert not spares_of(pool, keeper)
