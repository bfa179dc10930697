"""What the shared pool offers of a pool's features, and what it refuses by name."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest

import forebay
from forebay.config import PoolConfig
from forebay.pool import Accepting, Started
from tests.pool.faults.soak_services import Forked
from tests.pool.limited import Files, Hasty
from tests.pool.processes import alive, eventually
from tests.pool.scripts import ECHO, python
from tests.pool.services import Arrays, Echo, made_list
from tests.pool.shared.lender import Lending, Program


@pytest.fixture
def pool(lending: Lending) -> Iterator[forebay.SharedPool]:
    with forebay.SharedPool(lending.path) as made:
        yield made


@pytest.fixture
def command(tmp_path: Path) -> forebay.Command:
    return python(tmp_path, ECHO)


def test_each_lease_of_a_forked_class_gets_a_fork_of_its_own(
    pool: forebay.SharedPool, path: Path
) -> None:
    """State of one program would be seen by the next, which `Reset.FORK` promises against."""
    pids = set()
    with forebay.SharedPool(path) as other:
        for each in (pool, other):
            with each.acquire(Forked.spec(5)) as service:
                service.enter("a token that is left there")
                assert service.add(1) == 6
                pids.add(service.lease.pid)
    assert len(pids) == 2
    assert pool.stats()["starts"] == 2


def test_forked_classes_with_other_arguments_have_templates_of_their_own(
    pool: forebay.SharedPool,
) -> None:
    """The arguments are used in the template: another's would answer for them."""
    for base in (5, 7):
        with pool.acquire(Forked.spec(base)) as service:
            assert service.add(1) == base + 1


def test_several_services_are_called_at_once(pool: forebay.SharedPool) -> None:
    """Calls on many leases are a feature of the lease, wherever it comes from."""
    with pool.acquire(Echo.spec(1)) as first, pool.acquire(Echo.spec(2)) as second:
        answers = forebay.pool.call_many([(first, "add", (10,)), (second, "add", (10,))])
    assert answers == [11, 12]


def test_copies_of_a_lease_are_of_its_holder_alone(pool: forebay.SharedPool, path: Path) -> None:
    """Another program would get a service in the middle of somebody's work."""
    with forebay.SharedPool(path) as other, pool.acquire(Echo.spec(1)) as echo:
        with echo.lease.fork(8) as copies:
            assert [copy.add(number) for number, copy in enumerate(copies)] == list(range(1, 9))
            pids = {echo.lease.pid, *(copy.lease.pid for copy in copies)}
            assert len(pids) == 9
            assert pool.stats()["held"] == 1
            with other.acquire(Echo.spec(1)) as another:
                assert another.lease.pid not in pids
        assert eventually(lambda: sum(map(alive, pids)) == 1)
        assert echo.add(1) == 2


def test_copies_end_with_their_program(path: Path) -> None:
    """What a killed program leaves would fill the machine."""
    with Lending(path, "--max-size", "2"), Program(path, "branch", 4) as program:
        pids = program.told()
        assert all(map(alive, pids))
        program.kill()
        assert eventually(lambda: not any(map(alive, pids)))


def test_a_copy_of_a_lease_that_ended_is_refused(pool: forebay.SharedPool) -> None:
    """The next holder's state would be copied."""
    with pool.acquire(Echo.spec(1)) as echo:
        copies = echo.lease.fork(2)
    with pytest.raises(forebay.StaleError):
        copies.__enter__()


@pytest.mark.parametrize("programs", [1, 2])
def test_a_large_array_comes_by_reference(
    pool: forebay.SharedPool, path: Path, programs: int
) -> None:
    """A service that moves between programs would copy ten megabytes for every call."""
    with forebay.SharedPool(path) as other:
        for number, each in enumerate([pool, other, pool, other][: 2 * programs : 3 - programs]):
            with each.acquire(Arrays) as arrays:
                for value in range(1, 4):
                    array = numpy.full(10 << 20, value + number, numpy.uint8)
                    assert arrays.first_and_sum(array) == (value + number, (value + number) << 20)
                channel = arrays.lease._record.channel
                before = channel.metrics()["sent_bytes"]
                arrays.first_and_sum(array)
                assert channel.metrics()["sent_bytes"] - before < 1000
                assert (arrays.made(10 << 20, value) == value).all()
    assert pool.stats()["starts"] == 1


def test_what_a_factory_made_is_used_by_another_program(
    pool: forebay.SharedPool, path: Path
) -> None:
    """Without its methods, a program would find nothing on what another one made."""
    spec = forebay.factory(made_list, 3)
    with pool.acquire(spec) as made:
        made.append(3)
        pid = made.lease.pid
    with forebay.SharedPool(path) as other, other.acquire(spec) as made:
        assert made.lease.pid == pid
        assert made.pop() == 3
        assert made.index(2) == 2


def test_a_program_that_an_exception_leaves_is_ended(
    pool: forebay.SharedPool, command: forebay.Command
) -> None:
    """An answer that nobody took would be read by the next holder."""
    pid = 0
    with contextlib.suppress(LookupError), pool.acquire(command) as backend:
        backend.socket.sendall(b"asked")
        pid = backend.lease.pid
        raise LookupError
    with pool.acquire(command) as backend:
        assert backend.lease.pid != pid
        backend.socket.sendall(b"mine")
        assert backend.socket.recv(100) == b"mine"


def test_a_program_tells_that_it_has_no_client(
    pool: forebay.SharedPool, command: forebay.Command
) -> None:
    """An AttributeError from inside would say nothing."""
    with pool.acquire(command) as backend:
        assert isinstance(backend.socket, socket.socket)
        with pytest.raises(forebay.ConfigError, match="has no client"):
            _ = backend.client
        with pytest.raises(forebay.ConfigError, match="nothing but its socket is known"):
            _ = backend.started


def test_a_lease_that_was_lost_is_ended_at_the_next_acquire(
    pool: forebay.SharedPool, caplog: pytest.LogCaptureFixture
) -> None:
    """A program that forgets its leases would use up the pool of all."""
    echo = pool.acquire(Echo).__enter__()
    pid = echo.lease.pid
    del echo
    gc.collect()
    with caplog.at_level(logging.WARNING), pool.acquire(Echo.spec(1)) as other:
        assert other.add(1) == 2
    assert f"(process {pid}) was never ended" in caplog.text
    assert eventually(lambda: not alive(pid))


def test_an_environment_of_a_terminal_makes_no_other_service(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two terminals would have two services of everything; what matters still does."""
    pids = []
    with Lending(path, "--max-size", "3"):
        for name in ("SHLVL", "TERM_SESSION_ID", "LANGUAGE"):
            monkeypatch.setenv(name, "7")
            with Program(path, "use") as program:
                pids.append(program.told()[1])
                program.process.wait()
    assert pids[0] == pids[1] != pids[2]


def test_a_lender_replaces_services_as_a_pool_does(path: Path) -> None:
    """A service that leaks would grow for as long as the lender runs."""
    config = PoolConfig(max_size=1, max_uses=2)
    with forebay.pool.Lender(path, config=config) as lender:
        serving = threading.Thread(target=lender.serve)
        serving.start()
        try:
            with forebay.SharedPool(path) as pool:
                pids = []
                for _ in range(4):
                    with pool.acquire(Echo) as echo:
                        pids.append(echo.lease.pid)
                assert pids[0] == pids[1] != pids[2] == pids[3]
                assert eventually(lambda: pool.stats()["deaths"] == {"uses": 2})
        finally:
            os.write(lender.stop_fd, b".")
            serving.join()


def test_limits_hold_whoever_starts_the_service(pool: forebay.SharedPool) -> None:
    """Without them, one program's service could take the machine from all."""
    with pool.acquire(Files) as files:
        assert files.open_many(20) == 20
        with pytest.raises(OSError, match="Too many open files"):
            files.open_many(100)


def test_a_call_past_its_limit_ends_the_service(pool: forebay.SharedPool) -> None:
    """It would go on until the lease ends, which may be much later."""
    with pool.acquire(Hasty) as hasty:
        with pytest.raises(forebay.DeadlineError):
            hasty.hang()
        with pytest.raises(forebay.DiedError) as caught:
            hasty.grow(1)
        assert caught.value.cause == "call_deadline"


def test_each_lease_has_a_directory_of_its_own(pool: forebay.SharedPool, path: Path) -> None:
    """One program would find the files of the one before."""
    with forebay.SharedPool(path) as other:
        with pool.acquire(Echo) as echo:
            pid, first = echo.lease.pid, Path(echo.temporary_file())
            assert first.parent == echo.lease.directory
        with other.acquire(Echo) as echo:
            assert echo.lease.pid == pid
            assert list(echo.lease.directory.iterdir()) == []
            assert not first.exists()


def test_a_program_has_a_directory_for_its_lease(
    pool: forebay.SharedPool, command: forebay.Command
) -> None:
    """It may be told where to put its files."""
    with pool.acquire(command) as backend:
        directory = backend.lease.directory
        (directory / "left").touch()
    with pool.acquire(command) as backend:
        assert backend.lease.directory == directory
        assert list(directory.iterdir()) == []


def test_who_connects_to_a_program_in_another_way_gets_a_client_of_its_own(
    pool: forebay.SharedPool,
) -> None:
    """The program is one and the same; the client that another connector made is not."""
    listening = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "{port}"]
    told = []
    for word in ("first", "second"):

        def connect(started: Started, word: str = word) -> str:
            return f"{word} {started.port}"

        command = forebay.Command(listening, ready=Accepting(), connect=connect)
        with pool.acquire(command) as backend:
            told.append((backend.client.split()[0], backend.lease.pid))
    assert [word for word, _ in told] == ["first", "second"]
    assert told[0][1] == told[1][1]
