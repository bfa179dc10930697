"""`forebay serve` and `forebay pool`, as a user types them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import forebay
from tests.pool.processes import alive, descendants, eventually
from tests.pool.services import Echo
from tests.pool.shared.lender import Lending, Program

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lent" / "pool.sock"


@pytest.fixture
def lending(path: Path) -> Iterator[Lending]:
    with Lending(path, "--max-size", "2") as made:
        yield made


def forebay_command(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in the checkout, with the socket in its environment."""
    return subprocess.run(
        [sys.executable, "-m", "forebay.cli", *arguments],
        cwd=ROOT,
        env={**os.environ, "FOREBAY_POOL_PATH": str(path)},
        capture_output=True,
        text=True,
        timeout=30,
    )


def objects(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_serve_says_where_it_listens(path: Path) -> None:
    """A script would have to guess when programs may connect."""
    with Lending(path) as lending:
        told = lending.told
        assert told["schema"] == 1
        assert (told["event"], told["path"], told["pid"]) == ("listening", str(path), lending.pid)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_serve_ends_cleanly(path: Path, number: int, code: int) -> None:
    """Ctrl-C would leave services, a socket that nobody answers, or a traceback."""
    with Lending(path) as lending, forebay.SharedPool(path) as pool, pool.acquire(Echo):
        family = descendants(lending.pid)
        assert lending.end(number) == code
        assert eventually(lambda: not any(map(alive, family)))
    assert list(path.parent.iterdir()) == []


def test_serve_refuses_to_start_twice(lending: Lending) -> None:
    """Two lenders would each believe that the socket is theirs; the second names the first."""
    done = forebay_command(lending.path, "serve")
    assert done.returncode == 2
    assert f"process {lending.pid} already lends services at {lending.path}" in done.stderr
    assert done.stdout == ""


def test_serve_takes_times_as_people_write_them(path: Path) -> None:
    """An idle service would keep its memory for five minutes, whatever was asked for."""
    with (
        Lending(path, "--idle-timeout", "100ms") as lending,
        forebay.SharedPool(lending.path) as pool,
    ):
        with pool.acquire(Echo):
            pass
        assert eventually(lambda: pool.stats()["deaths"] == {"idle_timeout": 1})
    done = forebay_command(path, "serve", "--idle-timeout", "soon")
    assert done.returncode == 2
    assert "write a number and a unit" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--max-leases", "0"), 2, "max_leases is 0; give a number between 1 and"),
        (("--max-waiters", "-1"), 2, "max_waiters is -1"),
        (("--max-size", "99999999999"), 5, "max_size is 2048"),
        (("--max-size", "many"), 2, "invalid int value: 'many'"),
    ],
)
def test_serve_refuses_limits_that_make_no_sense(
    path: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    """A lender that lends nothing to anybody would be found out by a program that waits."""
    done = forebay_command(path, "serve", *arguments)
    assert done.returncode == code
    assert says in done.stderr
    assert not path.exists()


def test_a_warmed_service_is_what_a_program_of_this_directory_gets(lending: Lending) -> None:
    """A service that is warm for nobody would be a waste."""
    (told,) = objects(
        forebay_command(
            lending.path, "pool", "warm", "tests.pool.services:Echo", "-n", "2", "--json"
        )
    )
    assert (told["name"], told["warm"], told["schema"]) == ("Echo", 2, 1)
    program = (
        "import sys; sys.path[0] = ''\n"
        "import forebay\n"
        "from tests.pool.services import Echo\n"
        "with forebay.SharedPool() as pool, pool.acquire(Echo) as echo:\n"
        "    print(echo.lease.pid)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "FOREBAY_POOL_PATH": str(lending.path)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert int(done.stdout) in told["service_pids"], done.stderr


def test_ls_counts_services_by_kind_and_state(lending: Lending) -> None:
    """Who wonders where the memory went sees it."""
    with Program(lending.path, "hold") as holder:
        holder.told()
        (row,) = objects(forebay_command(lending.path, "pool", "ls", "--json"))
        shown = forebay_command(lending.path, "pool", "ls")
    assert row == {
        "schema": 1,
        "name": "Echo",
        "services": 1,
        "idle": 0,
        "leased": 1,
        "starting": 0,
        "settling": 0,
    }
    head, line = shown.stdout.splitlines()
    assert head.split() == ["kind", "idle", "leased", "starting", "settling"]
    assert line.split() == ["Echo", "0", "1", "0", "0"]
    assert f"process {lending.pid}" in shown.stderr


def test_leases_names_the_holder(lending: Lending) -> None:
    """A lease that is never given back is traced to its program."""
    with Program(lending.path, "hold") as holder:
        service = holder.told()
        (row,) = objects(forebay_command(lending.path, "pool", "leases", "--json"))
        none = objects(forebay_command(lending.path, "pool", "leases", "Notes", "--json"))
        shown = forebay_command(lending.path, "pool", "leases", "Echo")
    assert (row["service_pid"], row["holder_pid"]) == (service, holder.pid)
    assert row["age_s"] >= 0
    assert none == []
    assert str(holder.pid) in shown.stdout


def test_drain_ends_idle_services(lending: Lending) -> None:
    """New code would be met with services of the old."""
    forebay_command(lending.path, "pool", "warm", "tests.pool.services:Echo")
    (told,) = objects(forebay_command(lending.path, "pool", "drain", "Echo", "--json"))
    assert (told["ended"], told["marked"]) == (1, 0)
    assert objects(forebay_command(lending.path, "pool", "ls", "--json")) == []


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("pool", "warm", "tests.pool.services:Echoo"), 4, "no service class 'Echoo'"),
        (("pool", "warm", "nowhere:Echo"), 4, "no module 'nowhere'"),
        (("pool", "warm", "services.py:Echo"), 2, "write module:Class"),
        (("pool", "warm", "tests.pool.services:Echo", "-n", "3"), 5, "at most 2 services"),
        (("pool", "warm", "tests.pool.services:Unmakeable"), 1, "no such thing"),
        (("pool", "drain", "Nothing"), 4, "no service named 'Nothing'"),
    ],
)
def test_what_cannot_be_done_has_its_exit_code(
    lending: Lending, arguments: tuple[str, ...], code: int, says: str
) -> None:
    """A script would take a failure for a success, or one failure for another."""
    done = forebay_command(lending.path, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr


def test_a_full_pool_is_a_timeout(lending: Lending) -> None:
    """124 tells a script to try again later."""
    with Program(lending.path, "hold") as one, Program(lending.path, "hold") as two:
        one.told()
        two.told()
        done = forebay_command(
            lending.path, "pool", "warm", "tests.pool.services:Echo", "--timeout", "100ms"
        )
    assert done.returncode == 124
    assert f"process {one.pid} holds 1" in done.stderr


def test_no_lender_is_not_reachable(path: Path) -> None:
    """3 tells a script to start one; so does the message."""
    done = forebay_command(path, "pool", "ls", "--json")
    assert (done.returncode, done.stdout) == (3, "")
    error = json.loads(done.stderr)["error"]
    assert (error["code"], error["next"]) == ("not_reachable", "start one: forebay serve")
