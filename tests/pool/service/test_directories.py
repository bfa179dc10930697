from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import forebay
from tests.pool.conftest import PoolOf
from tests.pool.limited import Common, CommonTidy, Plain, Seeded, Settled, Tidy, Writer
from tests.pool.processes import eventually, parent
from tests.pool.scripts import ECHO, python


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where keepers make their directories: a place of the test's own."""
    base = tmp_path / "base"
    base.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(base))
    monkeypatch.setenv("TMPDIR", str(base))  # for a lender
    return base


@pytest.fixture
def pool(pool_of: PoolOf, base: Path) -> Iterator[forebay.ServicePool]:
    """A pool of one service, closed at the end, with nothing left of it."""
    with pool_of(max_size=1) as made:
        yield made
    assert eventually(lambda: os.listdir(base) == [])


@pytest.fixture(params=[Plain, Writer, Tidy], ids=["plain", "with a cache", "reset"])
def service(request: pytest.FixtureRequest) -> type[Writer]:
    """A service class for each way of being made clean."""
    made: type[Writer] = request.param
    return made


def ended(directory: Path) -> list[str]:
    """What was put aside in the keeper's directory, above that of a service or of its leases."""
    above = [*directory.parent.iterdir(), *directory.parent.parent.iterdir()]
    return [path.name for path in above if path.name.startswith("ended-")]


def test_a_lease_finds_its_directory_empty(
    pool: forebay.ServicePool, service: type[Writer]
) -> None:
    """What one holder's calls left is not there for the next."""
    with pool.acquire(service) as first:
        pid = first.lease.pid
        for name in ("secret", "tree/deep/secret"):
            first.write(name)
        assert first.listing() == ["secret", "tree"]
    with pool.acquire(service) as second:
        assert second.lease.pid == pid
        assert second.listing() == []


def test_the_directory_is_the_service_temporary_directory(pool: forebay.ServicePool) -> None:
    """Holder and service find each other's files."""
    with pool.acquire(Writer) as writer:
        directory = writer.lease.directory
        assert directory == Path(writer.temporary_directory())
        assert directory.stat().st_mode & 0o777 == 0o700
        (directory / "input").write_text("from the holder")
        assert writer.read("input") == "from the holder"
        writer.write("output")
        assert (directory / "output").read_text() == "output"
        assert Path(writer.child_temporary_directory()) == directory


def test_what_a_holder_put_there_first_is_kept_for_its_calls(pool: forebay.ServicePool) -> None:
    """Asking for the directory is a beginning of the lease, as a call is."""
    with pool.acquire(Writer) as writer:
        writer.write("old")
    with pool.acquire(Writer) as writer:
        (writer.lease.directory / "new").touch()
        assert writer.listing() == ["new"]


def test_a_holder_cannot_see_what_the_one_before_left(pool: forebay.ServicePool) -> None:
    """Also where it looks before its first call."""
    with pool.acquire(Writer) as writer:
        writer.write("secret")
    with pool.acquire(Writer) as writer:
        assert list(writer.lease.directory.iterdir()) == []


@pytest.mark.usefixtures("lending")
def test_another_program_finds_nothing_of_leases_that_shared_a_service(path: Path) -> None:
    """Also where no reset empties it: the service is another's from then on."""
    with forebay.SharedPool(path) as one, forebay.SharedPool(path) as other:
        with one.acquire(Common) as first, one.acquire(Common) as second:
            pid = first.lease.pid
            second.write("secret")
            assert first.listing() == ["secret"]
        with other.acquire(Common) as common:
            assert common.lease.pid == pid
            assert list(common.lease.directory.iterdir()) == []


def test_an_unused_directory_stays_what_it_is(pool: forebay.ServicePool) -> None:
    """A lease that writes nothing costs one look, and no directory."""
    with pool.acquire(Writer) as writer:
        number = writer.lease.directory.stat().st_ino
        assert writer.listing() == []
    with pool.acquire(Writer) as writer:
        assert writer.lease.directory.stat().st_ino == number
        writer.write("file")
    with pool.acquire(Writer) as writer:
        assert writer.lease.directory.stat().st_ino != number


def test_what_the_constructor_made_stays(pool: forebay.ServicePool) -> None:
    """A cache that a service makes for its life is no lease's."""
    for _ in range(3):
        with pool.acquire(Writer) as writer:
            assert writer.cached() == "made once"
            writer.write("something")


def test_a_service_may_run_in_the_directory(pool: forebay.ServicePool) -> None:
    """Programs that write where they are do not meet each other's files."""
    for _ in range(2):
        with pool.acquire(Settled) as settled:
            settled.write_here("result")
            directory = settled.lease.directory
            assert os.listdir(directory) == ["result"]
            assert settled.current_directory() == str(directory)
            settled.wander("/")


def test_a_directory_that_was_removed_is_made_anew(pool: forebay.ServicePool) -> None:
    """A holder that cleans up after itself does no harm."""
    with pool.acquire(Writer) as writer:
        writer.lease.directory.rmdir()
    with pool.acquire(Writer) as writer:
        assert writer.listing() == []


def test_ended_directories_go_while_the_service_lives(
    pool: forebay.ServicePool, base: Path
) -> None:
    """A disk is not filled by a service that lives long; links lead nowhere."""
    outside = base / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    for _ in range(3):
        with pool.acquire(Writer) as writer:
            writer.write("tree/file")
            writer.link("tree/link", str(outside))
    with pool.acquire(Writer) as writer:
        directory = writer.lease.directory
        assert eventually(lambda: ended(directory) == [], 20)
    assert os.listdir(outside) == ["kept"]
    (outside / "kept").unlink()
    outside.rmdir()


def test_a_deep_tree_does_not_hold_the_keeper(pool: forebay.ServicePool, base: Path) -> None:
    """What a service left is removed bit by bit, and completely."""
    with pool.acquire(Writer) as writer:
        writer.grow_tree(depth=120, files=3_000)
        keeper = parent(writer.lease.pid)
    with pool.acquire(Writer) as writer:
        assert writer.listing() == []
        directory = writer.lease.directory
        assert ended(directory) != []
        assert eventually(lambda: ended(directory) == [], 30)
        assert len(os.listdir(f"/proc/{keeper}/fd")) < 64


def test_a_program_has_a_directory_for_each_lease(
    pool: forebay.ServicePool, tmp_path: Path
) -> None:
    """Its holder tells it; its own temporary files are its own, for its life."""
    command = python(tmp_path, "\n    import os; print(os.environ['TMPDIR'], flush=True)" + ECHO)
    with pool.acquire(command) as program:
        pid, directory = program.lease.pid, program.lease.directory
        assert directory.parent == Path(program.lease.stderr.strip())
        (directory / "job").touch()
    with pool.acquire(command) as program:
        assert program.lease.pid == pid
        assert list(program.lease.directory.iterdir()) == []
    Path(command.arguments[3]).unlink()


def test_a_directory_after_the_lease_is_stale(pool: forebay.ServicePool) -> None:
    """It may belong to the next holder by then."""
    with pool.acquire(Writer) as writer:
        lease = writer.lease
    with pytest.raises(forebay.StaleError):
        _ = lease.directory


@pytest.mark.parametrize("shared", [Common, CommonTidy], ids=["stateless", "reset"])
def test_leases_that_share_a_service_share_its_directory(
    pool: forebay.ServicePool, shared: type[Writer]
) -> None:
    """None of them takes the other's files away; they go after the last of them."""
    with pool.acquire(shared) as one:
        one.write("of one")
        with pool.acquire(shared) as other:
            pid, directory = other.lease.pid, other.lease.directory
            assert pid == one.lease.pid
            assert directory == one.lease.directory
            other.write("of other")
        with pool.acquire(shared) as third:
            assert third.listing() == one.listing() == ["of one", "of other"]
    with pool.acquire(shared) as later:
        assert (later.lease.pid, later.lease.directory) == (pid, directory)
        assert later.listing() == []
        assert later.cached() == "made once"


def test_copying_a_service_leaves_its_directory_alone(pool: forebay.ServicePool) -> None:
    """A copy that reseeds itself first does not do that in the place of its original."""
    with pool.acquire(Seeded) as seeded:
        seeded.write("of the lease before")
    with pool.acquire(Seeded) as seeded, seeded.lease.fork(3) as copies:
        assert seeded.listing() == []
        seeded.write("original")
        assert [copied.seeds() for copied in copies] == [1, 1, 1]
        assert [copied.listing() for copied in copies] == [[]] * 3
        assert seeded.listing() == ["original"]


def test_a_copy_has_a_directory_of_its_own(pool: forebay.ServicePool) -> None:
    """A fork and its original do not write over each other."""
    with pool.acquire(Writer) as writer:
        writer.write("original")
        with writer.lease.fork(1) as (copy,):
            assert copy.listing() == []
            copy.write("copy")
            assert copy.lease.directory != writer.lease.directory
            assert writer.listing() == ["original"]
            assert copy.cached() == "made once"


def test_a_task_awaits_its_directory(pool: forebay.ServicePool) -> None:
    """A loop is not blocked by the question."""

    async def main() -> None:
        async with pool.acquire(Writer) as writer:
            directory = await writer.lease.directory
            await writer.write("file")
            assert os.listdir(directory) == ["file"]
            assert await writer.lease.directory == directory

    asyncio.run(main())
