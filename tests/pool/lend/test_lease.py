from __future__ import annotations

import os
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

import forebay
from tests.pool.conftest import PoolOf
from tests.pool.processes import alive, eventually
from tests.pool.services import Echo, Notes, Once


def test_a_service_runs_in_another_process(pool: forebay.ServicePool) -> None:
    """The whole point: the work is done elsewhere."""
    with pool.acquire(Echo) as echo:
        assert echo.echo({"a": [1, 2.5, None]}) == {"a": [1, 2.5, None]}
        assert echo.lease.pid != os.getpid()
        assert alive(echo.lease.pid)


def test_a_second_lease_gets_the_same_warm_service(pool: forebay.ServicePool) -> None:
    """A caller pays for the start once."""
    with pool.acquire(Echo) as first:
        pid = first.lease.pid
    with pool.acquire(Echo) as second:
        assert second.lease.pid == pid
    assert pool.stats()["starts"] == 1


def test_arguments_make_another_service(pool: forebay.ServicePool) -> None:
    """A caller never gets a service that was made with other arguments."""
    with pool.acquire(Echo.spec(base=40)) as forty, pool.acquire(Echo.spec(1)) as one:
        assert forty.add(2) == 42
        assert one.add(2) == 3


def test_equal_arguments_make_the_same_service(pool: forebay.ServicePool) -> None:
    """Specs are compared by what they say, not by who made them."""
    with pool.acquire(Echo.spec(base=40)) as first:
        pid = first.lease.pid
    with pool.acquire(Echo.spec(base=40)) as second:
        assert second.lease.pid == pid


def test_two_leases_have_two_services(pool: forebay.ServicePool) -> None:
    """Two holders never share one service."""
    with pool.acquire(Echo) as first, pool.acquire(Echo) as second:
        assert first.lease.pid != second.lease.pid


def test_the_service_released_last_is_lent_first(pool: forebay.ServicePool) -> None:
    """The warmest service is used, so that the others can go cold and be ended."""
    with pool.acquire(Echo) as outer:
        with pool.acquire(Echo) as inner:
            last = inner.lease.pid
        with pool.acquire(Echo) as again:
            assert again.lease.pid == last
        first = outer.lease.pid
    with pool.acquire(Echo) as final:
        assert final.lease.pid == first


def test_a_lease_that_ended_raises(pool: forebay.ServicePool) -> None:
    """A handle that was kept can never reach the next holder's service."""
    with pool.acquire(Echo) as echo:
        kept, lease = echo, echo.lease
    with pool.acquire(Echo) as other:
        for use in (lambda: kept.echo(1), lambda: lease.stderr, lambda: lease.submit("echo", 1)):
            with pytest.raises(forebay.StaleError, match="acquire it again"):
                use()
        assert other.echo(1) == 1


def test_the_generation_grows_with_every_lease(pool: forebay.ServicePool) -> None:
    """What tells an old handle from a new one."""
    with pool.acquire(Echo) as echo:
        first = echo.lease.generation
    with pool.acquire(Echo) as echo:
        assert echo.lease.generation > first


def test_reset_runs_between_leases(pool: forebay.ServicePool) -> None:
    """State of one holder does not reach the next."""
    for _ in range(5):
        with pool.acquire(Notes) as notes:
            assert notes.read() == []
            notes.note("secret")
    assert pool.stats()["starts"] <= 2


def test_what_must_never_be_reused_is_new_each_time(pool: forebay.ServicePool) -> None:
    """`Reset.NEVER`: every lease gets a new process."""
    pids = set()
    for _ in range(4):
        with pool.acquire(Once) as once:
            pids.add(once.lease.pid)
    assert len(pids) == 4
    assert eventually(lambda: not any(map(alive, pids)))


def test_what_a_method_raises_arrives_as_its_builtin(pool: forebay.ServicePool) -> None:
    """`except ValueError` works across processes, the traceback comes, the service stays."""
    with pool.acquire(Echo) as echo:
        with pytest.raises(ValueError, match="bad luck") as caught:
            echo.fail("bad luck")
        error = caught.value
        assert isinstance(error, forebay.RemoteError)
        assert "in fail" in error.traceback_text
        assert any("in fail" in note for note in error.__notes__)
        pid = echo.lease.pid
    with pool.acquire(Echo) as echo:
        assert echo.lease.pid == pid


def test_a_misspelt_method_is_found_before_the_call(pool: forebay.ServicePool) -> None:
    """A typo gets the nearest name."""
    with pool.acquire(Echo) as echo, pytest.raises(AttributeError, match="did you mean 'echo'"):
        echo.ecko  # noqa: B018


@pytest.mark.parametrize("name", ["_private", "reset", "spec", "__init__x"])
def test_what_is_not_public_cannot_be_called(pool: forebay.ServicePool, name: str) -> None:
    """Only public methods of the class are calls; `reset` is the pool's."""
    with pool.acquire(Notes) as notes, pytest.raises(AttributeError):
        getattr(notes, name)


def test_a_call_with_a_timeout_ends_and_the_service_is_replaced(pool: forebay.ServicePool) -> None:
    """A service that is still busy with somebody's call is never lent on."""
    with pool.acquire(Echo) as echo:
        pid = echo.lease.pid
        with pytest.raises(forebay.DeadlineError) as caught:
            echo.lease.options(timeout=0.05).hang()
        assert caught.value.timeout == pytest.approx(0.05)
    with pool.acquire(Echo) as echo:
        assert echo.lease.pid != pid
        assert echo.echo(1) == 1
    assert eventually(lambda: not alive(pid))


def test_submit_returns_a_future(pool: forebay.ServicePool) -> None:
    """Several calls under way from one thread, and the futures of the standard library."""
    with pool.acquire(Echo.spec(base=1)) as echo:
        futures = [echo.lease.submit("add", value) for value in range(20)]
        assert [future.result(timeout=10) for future in futures] == list(range(1, 21))


def test_a_lease_that_ends_before_its_calls_discards_the_service(pool: forebay.ServicePool) -> None:
    """What is still running belongs to the old holder; the next one gets another service."""
    with pool.acquire(Echo) as echo:
        pid = echo.lease.pid
        future = echo.lease.submit("hang")
    with pytest.raises((forebay.BrokenError, forebay.ClosedError)):
        future.result(timeout=10)
    with pool.acquire(Echo) as echo:
        assert echo.lease.pid != pid


def test_output_of_a_service_can_be_read(pool: forebay.ServicePool) -> None:
    """What a service prints is not lost, and does not fill the client's terminal."""
    with pool.acquire(Echo) as echo:
        echo.say("hello from afar")
        assert "hello from afar" in echo.lease.stderr


def test_the_newest_output_is_kept(pool: forebay.ServicePool) -> None:
    """A service that prints without end costs 16 KiB."""
    with pool.acquire(Echo) as echo:
        for _ in range(100):
            echo.say("x" * 1000)
        echo.say("the end")
        text = echo.lease.stderr
        assert len(text) <= 16 * 1024
        assert text.endswith("the end\n")


def test_temporary_files_end_with_the_service(pool: forebay.ServicePool) -> None:
    """A service that is killed leaves no file behind."""
    with pool.acquire(Once) as once:
        path = Path(once.temporary_file())
        assert path.exists()
    assert eventually(lambda: not path.parent.exists())


def test_forked_services_have_random_numbers_of_their_own(pool: forebay.ServicePool) -> None:
    """Copies of one template do not draw the same numbers."""
    with pool.acquire(Once) as first, pool.acquire(Once) as second:
        assert first.random() != second.random()


def test_a_service_inherits_no_descriptor_but_its_own(pool: forebay.ServicePool) -> None:
    """No file of the client stays open because a service lives."""
    with open("/dev/null") as file, pool.acquire(Once) as once:
        assert file.fileno() > 2
        # stdin, stdout, stderr, its own socket, and the directory that is being listed
        assert len(once.open_descriptors()) <= 6


def test_a_service_has_one_thread(pool: forebay.ServicePool) -> None:
    """Only a single-threaded process can be forked safely."""
    with pool.acquire(Echo) as echo:
        assert echo.threads() == 1


def test_the_default_pool_is_made_on_first_use() -> None:
    """No set-up for the common case."""
    forebay.set_default_pool(None)
    try:
        with forebay.acquire(Echo) as echo:
            assert echo.echo("hi") == "hi"
    finally:
        forebay.default_pool().close()
        forebay.set_default_pool(None)


def test_an_argument_that_cannot_travel_costs_nothing(pool: forebay.ServicePool) -> None:
    """Nothing was sent, so the service is as it was."""
    with pool.acquire(Echo) as echo:
        pid = echo.lease.pid
        with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
            echo.echo(lambda: None)
        assert echo.echo(1) == 1
    with pool.acquire(Echo) as echo:
        assert echo.lease.pid == pid


class Tardy:
    """An argument that takes its time to be pickled."""

    def __init__(self, begun: threading.Event, go_on: threading.Event) -> None:
        self.events = begun, go_on

    def __reduce__(self) -> tuple[type, tuple[()]]:
        begun, go_on = self.events
        begun.set()
        assert go_on.wait(20)
        return (list, ())


def test_a_call_that_is_late_never_runs_on_the_next_lease(pool_of: PoolOf) -> None:
    """A call that was begun before its lease ended is refused by the next holder's service."""
    with pool_of(max_size=1) as pool:
        begun, go_on = threading.Event(), threading.Event()
        outcome: list[BaseException | None] = []

        def late(notes: Any) -> None:
            try:
                notes.note(Tardy(begun, go_on))
                outcome.append(None)
            except forebay.Error as error:
                outcome.append(error)

        with pool.acquire(Notes) as notes:
            thread = threading.Thread(target=late, args=(notes,))
            thread.start()
            assert begun.wait(20)
        with pool.acquire(Notes) as notes:
            assert notes.read() == []
            go_on.set()
            thread.join(20)
            assert notes.read() == []
        assert isinstance(outcome[0], forebay.Error)
