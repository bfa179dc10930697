"""How long a service is kept, how many are ready, and who is told what about leases."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import forebay
from tests.pool.conftest import PoolOf
from tests.pool.processes import alive, eventually, parent
from tests.pool.services import Echo, Ledger, Notes, Tree


def idle(pool: Any) -> int:
    stats = pool.stats()
    return int(stats["idle"] + stats["settling"])


def test_a_service_serves_no_more_leases_than_max_uses(pool_of: PoolOf) -> None:
    with pool_of(max_size=1, max_uses=3) as pool:
        pids = []
        for _ in range(7):
            with pool.acquire(Echo) as echo:
                pids.append(echo.lease.pid)
        assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [3, 3, 1]
        assert eventually(lambda: pool.stats()["deaths"].get("uses") == 2)


def test_an_idle_service_is_ended_when_it_is_too_old(pool_of: PoolOf) -> None:
    with pool_of(max_size=1, max_lifetime=0.2) as pool:
        with pool.acquire(Echo) as echo:
            pid = echo.lease.pid
        assert eventually(lambda: not alive(pid))
        assert eventually(lambda: pool.stats()["deaths"] == {"lifetime": 1})


def test_a_service_that_is_too_old_when_it_comes_back_is_not_lent_again(pool_of: PoolOf) -> None:
    with pool_of(max_size=1, max_lifetime=0.05) as pool:
        with pool.acquire(Echo) as echo:
            pid = echo.lease.pid
            threading.Event().wait(0.1)  # it grows old in use
            assert echo.add(1) == 1, "in use it is left alone"
        with pool.acquire(Echo) as echo:
            assert echo.lease.pid != pid


def test_a_stateful_service_is_not_ended_for_idleness_age_or_use(pool_of: PoolOf) -> None:
    """What its leases left in it is there as long as its pool."""
    settings = {"idle_timeout": 0.05, "max_lifetime": 0.05, "max_uses": 2, "max_memory": "1MiB"}
    with pool_of(max_size=2, **settings) as pool:
        with pool.acquire(Ledger) as ledger:
            pid = ledger.lease.pid
            ledger.put("a", 1)
        for _ in range(3):  # others come and go for all of these reasons
            with pool.acquire(Echo) as echo:
                other = echo.lease.pid
            assert eventually(lambda pid=other: not alive(pid))
            with pool.acquire(Ledger) as ledger:
                assert ledger.lease.pid == pid
                assert ledger.get("a") == 1
        assert eventually(lambda: sum(pool.stats()["deaths"].values()) == 3)


def test_a_stateful_service_makes_no_room_for_others(pool_of: PoolOf) -> None:
    """A full pool says that it is full, rather than lose what a service holds."""
    with pool_of(max_size=1) as pool:
        with pool.acquire(Ledger) as ledger:
            ledger.put("a", 1)
        with pytest.raises(forebay.DeadlineError), pool.acquire(Echo, timeout=0.1):
            pass
        with pool.acquire(Ledger) as ledger:
            assert ledger.get("a") == 1


def test_no_more_than_max_running_are_lent_at_once(pool_of: PoolOf) -> None:
    with pool_of(max_size=3, max_running=1) as pool:
        pool.warm(Echo, 2)
        with (
            pool.acquire(Echo),
            pytest.raises(forebay.DeadlineError, match=r"1 are leased"),
            pool.acquire(Echo, timeout=0.05),
        ):
            pass
        with pool.acquire(Echo, timeout=10):
            pass


def test_services_are_kept_ready_and_replaced(pool_of: PoolOf) -> None:
    with pool_of(max_size=4) as pool:
        pool.warm(Echo, 2)
        assert eventually(lambda: idle(pool) == 2)
        with pool.acquire(Echo) as echo:
            assert echo.add(1) == 1
            assert eventually(lambda: idle(pool) == 2), "what was taken is replaced"
            os.kill(echo.lease.pid, signal.SIGKILL)
        with pool.acquire(Echo), pool.acquire(Echo):
            assert eventually(lambda: idle(pool) == 2), "as far as max_size has room"
        pool.warm(Echo, 0)


def test_warm_services_outlast_their_idle_timeout(pool_of: PoolOf) -> None:
    with pool_of(max_size=3, idle_timeout=0.05) as pool:
        pool.warm(Echo, 1)
        with pool.acquire(Echo) as first, pool.acquire(Echo) as second:
            pids = {first.lease.pid, second.lease.pid}
        assert eventually(lambda: sum(map(alive, pids)) + idle(pool) <= 2)
        assert eventually(lambda: idle(pool) == 1), "those above the minimum go"
        before = pool.stats()["starts"]
        threading.Event().wait(0.2)  # more than the idle timeout
        assert idle(pool) == 1
        assert pool.stats()["starts"] == before, "it stays rather than being replaced"


def test_a_pool_with_min_idle_keeps_every_kind_ready_that_was_used(pool_of: PoolOf) -> None:
    with pool_of(max_size=4, min_idle=1) as pool:
        with pool.acquire(Echo):
            assert eventually(lambda: idle(pool) == 1)
        with pool.acquire(Notes):
            assert eventually(lambda: idle(pool) >= 2)


def test_more_warm_services_than_the_pool_has_room_for_are_refused(pool_of: PoolOf) -> None:
    with pool_of(max_size=1) as pool, pytest.raises(forebay.LimitError, match="max_size"):
        pool.warm(Echo, 2)


def test_a_service_that_cannot_be_kept_ready_is_told_to_who_wants_it(
    pool_of: PoolOf, caplog: pytest.LogCaptureFixture
) -> None:
    with pool_of(max_size=2) as pool:
        pool.warm(Echo.spec("no such argument", "there"), 1)
        with (
            pytest.raises(forebay.RemoteError, match="positional argument"),
            pool.acquire(Echo.spec("no such argument", "there")),
        ):
            pass


def test_a_service_that_was_idle_for_long_is_asked_before_it_is_lent(pool_of: PoolOf) -> None:
    with pool_of(max_size=1, ping_after=0.02, reset_timeout=2.0) as pool:
        with pool.acquire(Echo) as echo:
            pid = echo.lease.pid
        threading.Event().wait(0.05)  # quiet for longer than ping_after
        with pool.acquire(Echo) as echo:
            assert echo.lease.pid == pid, "it answered"
        threading.Event().wait(0.05)
        os.kill(pid, signal.SIGSTOP)
        with pool.acquire(Echo, timeout=10) as echo:
            assert echo.lease.pid != pid, "a hung service was lent"
            assert echo.add(1) == 1
        assert eventually(lambda: not alive(pid))


def test_a_lease_that_is_out_for_too_long_is_reported_with_its_place(
    pool_of: PoolOf, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        pool_of(max_size=2, leak_after=0.02) as pool,
        caplog.at_level(logging.WARNING),
        pool.acquire(Echo) as leaked,
    ):
        threading.Event().wait(0.05)
        with pool.acquire(Echo):
            pass
        with pool.acquire(Echo):
            pass
        [report] = [record.getMessage() for record in caplog.records]
        assert f"(process {leaked.lease.pid}) acquired at {__file__}:" in report
        assert pool.stats()["leaks"] == 1


def test_a_lease_that_nobody_can_end_is_found(
    pool_of: PoolOf, caplog: pytest.LogCaptureFixture
) -> None:
    with pool_of(max_size=1) as pool, caplog.at_level(logging.WARNING):
        echo: Any = pool.acquire(Echo).__enter__()
        pid = echo.lease.pid
        del echo
        gc.collect()
        with pool.acquire(Echo, timeout=10) as echo:
            assert echo.lease.pid != pid
        assert pool.stats()["leaks"] == 1
        assert "was never ended" in caplog.text


def test_stats_count_what_happened(pool_of: PoolOf) -> None:
    with pool_of(max_size=1) as pool:
        for _ in range(2):
            with pool.acquire(Notes):
                pass
        with pool.acquire(Echo):
            stats = pool.stats()
            assert (stats["leased"], stats["starting"], stats["live"]) == (1, 0, 1)
        stats = pool.stats()
        assert (stats["starts"], stats["leases"], stats["resets"]) == (2, 3, 2)
        assert eventually(lambda: pool.stats()["deaths"] == {"evicted": 1})


def test_a_tree_of_copies_leaves_the_counts_alone(pool_of: PoolOf) -> None:
    with pool_of(max_size=1, max_running=1) as pool, pool.acquire(Tree) as tree:
        with tree.lease.fork(2):
            assert pool.stats()["live"] == 1
        assert pool.stats()["leased"] == 1


def test_a_new_kind_is_kept_ready_after_the_keeper_died(pool_of: PoolOf) -> None:
    with pool_of(max_size=4, min_idle=1) as pool:
        with pool.acquire(Echo) as echo:
            os.kill(parent(echo.lease.pid), signal.SIGKILL)
        with pool.acquire(Notes, timeout=10) as notes:
            assert notes.read() == []
            assert eventually(lambda: idle(pool) >= 1)


def test_a_kind_that_cannot_start_is_not_started_over_and_over(pool_of: PoolOf) -> None:
    with pool_of(max_size=8) as pool:
        pool.warm(Echo.spec("no such argument", "there"), 4)
        for _ in range(60):
            with pool.acquire(Echo):
                pass
        assert pool.stats()["starts"] < 40


def test_threads_that_look_for_leaks_do_not_disturb_each_other(pool_of: PoolOf) -> None:
    with pool_of(max_size=4, leak_after=30.0) as pool, ThreadPoolExecutor(4) as executor:

        def cycles(_: int) -> int:
            for _ in range(300):
                with pool.acquire(Echo, timeout=30):
                    pass
            return pool.stats()["leaks"]

        assert set(executor.map(cycles, range(4))) == {0}
        assert pool.stats()["leased"] == 0
