"""A pool whose client, keeper or service has hardly any descriptors left."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import forebay
from forebay import _core
from tests.pool.limited import Hog
from tests.pool.processes import open_files_limited, parent
from tests.pool.scripts import ROOT
from tests.pool.services import Echo, Once


@pytest.fixture
def few_descriptors() -> Iterator[Callable[[int], None]]:
    """Sets this process's limit so that it can open so many more files."""
    with open_files_limited() as limit:
        yield limit


@pytest.mark.parametrize("room", [0, 1])
def test_a_client_without_descriptors_is_told_the_limit(
    pool: forebay.ServicePool, few_descriptors: Callable[[int], None], room: int
) -> None:
    """The message names the limit and what to do; later the same pool works."""
    with pool.acquire(Echo):
        pass
    few_descriptors(room)
    with (
        pytest.raises(forebay.LimitError, match=r"all \d+ descriptors of this process.*ulimit -n"),
        pool.acquire(Hog),
    ):
        pass
    few_descriptors(100)
    with pool.acquire(Echo) as echo:
        assert echo.echo(1) == 1


def test_a_queue_that_gets_no_descriptor_tells_the_limit(
    few_descriptors: Callable[[int], None],
) -> None:
    """It was an error of the system without a number or a next step."""
    few_descriptors(0)
    with pytest.raises(forebay.LimitError, match=r"eventfd: all \d+ descriptors of this process"):
        _core.WakeQueue()


def test_a_client_that_cannot_watch_its_service_is_told(
    pool: forebay.ServicePool, few_descriptors: Callable[[int], None]
) -> None:
    """A pidfd that the kernel had to drop costs one start, not a hang."""
    with pool.acquire(Echo):
        pass
    told = []
    for room in range(8):
        few_descriptors(room)
        try:
            with pool.acquire(Once, timeout=10) as once:
                once.echo(1)
        except (forebay.LimitError, forebay.DiedError) as error:
            told.append(str(error))
    assert any("receiving the pidfd" in text for text in told), told
    assert all("descriptors of this process are in use; raise" in text for text in told), told
    few_descriptors(100)
    with pool.acquire(Hog) as hog:
        assert hog.grow(1) == 1


def test_a_keeper_without_descriptors_lives_and_says_so(pool: forebay.ServicePool) -> None:
    """The services that run are not lost because one more cannot be started."""
    with pool.acquire(Echo) as echo:
        keeper = parent(echo.lease.pid)
        most = max(map(int, os.listdir(f"/proc/{keeper}/fd")))
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        told = []
        for room in range(1, 6):
            limit = most + room
            resource.prlimit(keeper, resource.RLIMIT_NOFILE, (limit, hard))
            with pytest.raises(forebay.DiedError, match="of the keeper are in use") as caught:
                pool.acquire(Hog).__enter__()
            assert f"all {limit} descriptors" in str(caught.value)
            assert f"ulimit -n {2 * limit}" in str(caught.value)
            told.append(caught.value.cause)
        assert set(told) == {"not_started"}
        assert echo.echo(1) == 1
        resource.prlimit(keeper, resource.RLIMIT_NOFILE, (hard, hard))
        with pool.acquire(Hog) as hog:
            assert hog.grow(1) == 1


def test_a_pool_works_under_a_very_low_limit(tmp_path: Path) -> None:
    """`ulimit -n 32` is enough for a keeper, its template, a service and a program."""
    program = """
import forebay
from tests.pool.services import Echo
with forebay.ServicePool(max_size=1) as pool:
    with pool.acquire(Echo) as echo:
        print(echo.echo("hello"))
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}

    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))

    ended = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        preexec_fn=lower,
        capture_output=True,
        text=True,
    )
    assert (ended.stdout, ended.stderr) == ("hello\n", "")
