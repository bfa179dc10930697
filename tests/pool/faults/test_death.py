from __future__ import annotations

import contextlib
import os
import signal
import time

import pytest

import forebay
from tests.pool.conftest import PoolOf
from tests.pool.processes import alive, children, descendants, eventually, parent, template_of
from tests.pool.services import Echo, Notes, Slow, Suicidal, Unmakeable

START_S = 4.0
"""What a start may take where that is tested: the first one starts an interpreter too."""


def kill(pid: int) -> None:
    """Kill a process and wait until it is gone."""
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not alive(pid))


def test_a_service_killed_in_a_call_is_told_with_its_signal(pool: forebay.ServicePool) -> None:
    """The caller learns which signal it was and what the service said last."""
    with pool.acquire(Echo) as echo:
        pid = echo.lease.pid
        with pytest.raises(forebay.DiedError, match="SIGKILL") as caught:
            echo.die(signal.SIGKILL)
    error = caught.value
    assert (error.cause, error.signal, error.exit_code) == ("signal", signal.SIGKILL, None)
    assert error.pid == pid
    assert "about to die" in error.stderr_tail
    assert error.delivered == "maybe"
    assert isinstance(error, ConnectionError)


def test_a_crash_shows_where_it_happened(pool: forebay.ServicePool) -> None:
    """A segmentation fault comes with the Python stack that led to it."""
    with pool.acquire(Echo) as echo, pytest.raises(forebay.DiedError) as caught:
        echo.die(signal.SIGSEGV)
    assert caught.value.signal == signal.SIGSEGV
    assert "in die" in caught.value.stderr_tail


def test_a_service_that_exits_is_told_with_its_code(pool: forebay.ServicePool) -> None:
    """The exit code reaches the caller, although the template did the fork."""
    with pool.acquire(Echo) as echo, pytest.raises(forebay.DiedError, match="code 7") as caught:
        echo.leave(7)
    assert (caught.value.cause, caught.value.exit_code) == ("exit", 7)


def test_after_a_death_the_next_acquire_starts_another(pool: forebay.ServicePool) -> None:
    """One death costs one call."""
    for _ in range(5):
        with pool.acquire(Echo) as echo, pytest.raises(forebay.DiedError):
            echo.leave(1)
    with pool.acquire(Echo) as echo:
        assert echo.echo(1) == 1
    assert pool.stats()["deaths"]["exit"] == 5


def test_acquire_replaces_a_service_killed_while_idle(pool: forebay.ServicePool) -> None:
    """A caller never gets a dead service: one that died unseen is replaced in the same call."""
    with pool.acquire(Echo) as first:
        victim = first.lease.pid
    kill(victim)
    with pool.acquire(Echo) as second:
        assert second.lease.pid != victim
        assert second.echo("pong") == "pong"
    assert eventually(lambda: sum(pool.stats()["deaths"].values()) == 1)


def test_a_stopped_service_costs_one_timeout(pool: forebay.ServicePool) -> None:
    """A service that hangs, even one that the kernel has stopped, goes to nobody else."""
    with pool.acquire(Echo) as echo:
        victim = echo.lease.pid
        os.kill(victim, signal.SIGSTOP)
        with pytest.raises(forebay.DeadlineError):
            echo.lease.options(timeout=0.1).echo(1)
    with pool.acquire(Echo) as echo:
        assert echo.lease.pid != victim
        assert echo.echo(1) == 1
    assert eventually(lambda: not alive(victim))


@pytest.mark.parametrize("how", ["hang", "fail", "die"])
def test_a_service_that_cannot_reset_is_replaced(pool_of: PoolOf, how: str) -> None:
    """A service that hangs, raises or ends in its reset goes to nobody else."""
    with pool_of(max_size=1, reset_timeout=0.2) as pool:
        with pool.acquire(Notes) as notes:
            victim = notes.lease.pid
            notes.note("secret")
            notes.next_reset(how)
        with pool.acquire(Notes, timeout=10) as notes:
            assert notes.lease.pid != victim
            assert notes.read() == []
        assert eventually(lambda: not alive(victim))


def test_a_hung_reset_is_ended_although_nobody_waits(pool_of: PoolOf) -> None:
    """The keeper holds the deadline, not the next caller."""
    with pool_of(max_size=1, reset_timeout=0.2) as pool:
        with pool.acquire(Notes) as notes:
            victim = notes.lease.pid
            notes.next_reset("hang")
        assert eventually(lambda: pool.stats()["deaths"] == {"reset_deadline": 1})
        assert not alive(victim)


def test_an_idle_service_is_ended_after_its_timeout(pool_of: PoolOf) -> None:
    """Memory goes back when nobody needs the service."""
    with pool_of(max_size=1, idle_timeout=0.2) as pool:
        with pool.acquire(Echo) as echo:
            pid = echo.lease.pid
        assert eventually(lambda: pool.stats()["deaths"] == {"idle_timeout": 1})
        assert not alive(pid)
        with pool.acquire(Echo) as echo:
            assert echo.echo(1) == 1


def test_a_service_in_use_is_never_idle(pool_of: PoolOf) -> None:
    """The idle timeout does not count the time of a lease."""
    with pool_of(max_size=1, idle_timeout=0.1) as pool, pool.acquire(Echo) as echo:
        pid = echo.lease.pid
        with pytest.raises(forebay.DeadlineError):
            echo.lease.options(timeout=0.4).hang()
        assert alive(pid)


def test_a_constructor_that_raises_is_told_as_what_it_raised(pool: forebay.ServicePool) -> None:
    """A service that cannot be made says why, and leaves no process behind."""
    with pytest.raises(LookupError, match="no such thing") as caught, pool.acquire(Unmakeable):
        pass
    assert isinstance(caught.value, forebay.RemoteError)
    assert pool.stats()["live"] == 0


def test_a_service_that_ends_before_it_is_ready_is_told(pool: forebay.ServicePool) -> None:
    """A constructor that ends the process is a death with its last words, not a hang."""
    raising = pytest.raises(forebay.DiedError, match="I would rather not")
    with raising as caught, pool.acquire(Suicidal):
        pass
    assert caught.value.exit_code == 3


def test_a_killed_template_is_replaced(pool: forebay.ServicePool) -> None:
    """Services live on without their template, and the next start makes a new one."""
    with pool.acquire(Echo) as first:
        kill(template_of(first.lease.pid))
        assert first.echo(1) == 1
        with pool.acquire(Echo) as second:
            assert second.echo(2) == 2


def test_a_stopped_template_is_replaced(pool_of: PoolOf) -> None:
    """A template that takes no orders costs one `start_timeout`; its services serve on."""
    with (
        pool_of(max_size=2, start_timeout=START_S) as pool,
        pool.acquire(Echo) as first,
    ):
        stopped = template_of(first.lease.pid)
        os.kill(stopped, signal.SIGSTOP)
        with pytest.raises(forebay.DiedError) as caught, pool.acquire(Echo, timeout=20):
            pass
        assert caught.value.cause == "start_deadline"
        assert eventually(lambda: not alive(stopped))
        assert first.echo(1) == 1
        with pool.acquire(Echo, timeout=20) as second:
            assert second.echo(2) == 2


def test_a_killed_keeper_takes_its_services_along_and_is_replaced(
    pool: forebay.ServicePool,
) -> None:
    """Nothing outlives its keeper, the caller is told, and the pool goes on with another."""
    with pool.acquire(Echo) as echo:
        pid = echo.lease.pid
        grandchild = echo.spawn()
        kill(parent(pid))
        with pytest.raises(forebay.DiedError) as caught:
            echo.echo(1)
        assert caught.value.cause == "keeper_lost"
    assert eventually(lambda: not alive(pid) and not alive(grandchild))
    with pool.acquire(Echo) as echo:
        assert echo.echo(1) == 1
        assert echo.lease.pid != pid


def test_a_stopped_keeper_hangs_nobody() -> None:
    """What needs no keeper goes on; what needs it ends in its time; close leaves nothing."""
    with forebay.ServicePool(max_size=2) as pool:
        with pool.acquire(Echo) as echo:
            pid, keeper = echo.lease.pid, parent(echo.lease.pid)
        processes = [keeper, *descendants(keeper)]
        os.kill(keeper, signal.SIGSTOP)
        for number in range(20):
            with pool.acquire(Echo) as echo:
                assert (echo.echo(number), echo.lease.pid) == (number, pid)
        began = time.monotonic()
        with pytest.raises(forebay.DeadlineError), pool.acquire(Notes, timeout=0.3):
            pass
        assert time.monotonic() - began < 2
        pool.close(0.3)
        assert time.monotonic() - began < 3
        assert eventually(lambda: not any(map(alive, processes)))


def test_a_stopped_keeper_whose_socket_is_full_is_replaced(pool_of: PoolOf) -> None:
    """Resets that it does not take cost one wait of a second, then another keeper is started."""
    with pool_of(max_size=1, reset_timeout=30) as pool:
        with pool.acquire(Notes) as notes:
            keeper = parent(notes.lease.pid)
        os.kill(keeper, signal.SIGSTOP)
        slowest = 0.0
        for _ in range(1500):
            began = time.monotonic()
            with contextlib.suppress(forebay.Error), pool.acquire(Notes, timeout=20) as notes:
                notes.read()
            slowest = max(slowest, time.monotonic() - began)
            if not alive(keeper):
                break
        assert not alive(keeper)
        assert slowest < 5
        with pool.acquire(Notes, timeout=20) as notes:
            assert parent(notes.lease.pid) != keeper


@pytest.mark.parametrize(("stopped", "timeout"), [(True, 0.3), (False, 0.0)])
def test_a_close_that_cannot_wait_kills_every_group(*, stopped: bool, timeout: float) -> None:
    """What a service started ends with a keeper that had to be killed, or had no time."""
    pool = forebay.ServicePool(max_size=1)
    with pool.acquire(Echo) as echo:
        pid, grandchild = echo.lease.pid, echo.spawn()
    if stopped:
        os.kill(parent(pid), signal.SIGSTOP)
    pool.close(timeout)
    assert eventually(lambda: not alive(pid) and not alive(grandchild))


def test_what_a_service_started_ends_with_it(pool: forebay.ServicePool) -> None:
    """A compiler that a service runs does not outlive the service."""
    with pool.acquire(Echo) as echo:
        grandchild = echo.spawn()
        assert alive(grandchild)
        with pytest.raises(forebay.DiedError):
            echo.leave(0)
    assert eventually(lambda: not alive(grandchild))


def test_close_ends_everything() -> None:
    """A closed pool leaves no process, whoever holds a lease."""
    pool = forebay.ServicePool(max_size=2)
    with pool.acquire(Echo) as echo:
        echo.ignore_termination()
        keeper, pid, grandchild = parent(echo.lease.pid), echo.lease.pid, echo.spawn()
        others = children(keeper)
        pool.close()
        assert not any(alive(process) for process in (keeper, pid, grandchild, *others))
        with pytest.raises(forebay.Error):
            echo.echo(1)
    pool.close()
    with pytest.raises(forebay.ClosedError), pool.acquire(Echo):
        pass


def test_a_service_that_was_reset_in_time_stays(pool_of: PoolOf) -> None:
    """The deadline does not end a service that has answered and that nobody needed since."""
    with pool_of(max_size=1, reset_timeout=2.0) as pool:
        with pool.acquire(Notes) as notes:
            pid = notes.lease.pid
            notes.note("secret")
        time.sleep(2.5)  # the deadline passes: that is what is looked at
        with pool.acquire(Notes) as notes:
            assert notes.lease.pid == pid
            assert notes.read() == []
        assert pool.stats()["deaths"] == {}


def test_a_start_that_nobody_waits_for_stays(pool_of: PoolOf) -> None:
    """A service that became ready in time is kept, although its caller had left."""
    with pool_of(max_size=1, start_timeout=START_S) as pool:
        with pytest.raises(forebay.DeadlineError), pool.acquire(Slow.spec(0.5), timeout=0.1):
            pass
        time.sleep(START_S + 0.5)  # the deadline passes: that is what is looked at
        assert pool.stats()["deaths"] == {}
        with pool.acquire(Slow.spec(0.5), timeout=10) as slow:
            assert slow.echo(1) == 1
        assert pool.stats()["starts"] == 1


def test_a_start_that_hangs_is_ended_whoever_waited_for_it(pool_of: PoolOf) -> None:
    """Callers who come and go do not keep a hung constructor alive."""
    with pool_of(max_size=1, start_timeout=START_S) as pool:
        for timeout in (0.02, 0.1, 0.3):
            with pytest.raises(forebay.DeadlineError), pool.acquire(Slow.spec(60), timeout=timeout):
                pass
        with pool.acquire(Echo, timeout=20) as echo:
            assert echo.echo(1) == 1
        assert pool.stats()["deaths"] == {"start_deadline": 1}


def test_a_reset_that_raises_is_told_with_its_exception(
    pool: forebay.ServicePool, caplog: pytest.LogCaptureFixture
) -> None:
    """Who is to mend a reset needs what it raised, and a count of its own."""
    with pool.acquire(Notes) as notes:
        notes.next_reset("fail")
    with pool.acquire(Notes) as notes:
        notes.read()
    assert "failed to reset and is replaced: " in caplog.text
    assert "RuntimeError" in caplog.text
    assert "in reset" in caplog.text, "its traceback"
    assert eventually(lambda: pool.stats()["deaths"] == {"reset_failed": 1})


def test_the_last_words_of_a_service_are_of_its_last_lease(pool_of: PoolOf) -> None:
    """What one holder had a service print is not shown to the next one, nor taken for a cause."""
    with pool_of(max_size=1) as pool:
        with pool.acquire(Echo) as echo:
            echo.say("a secret of the first lease")
            assert eventually(lambda: "secret" in echo.lease.stderr)
        with pool.acquire(Echo) as echo, pytest.raises(forebay.DiedError) as caught:
            echo.die(signal.SIGTERM)
        assert "about to die" in str(caught.value)
        assert "secret" not in str(caught.value)
        assert caught.value.stderr_tail == "about to die"
