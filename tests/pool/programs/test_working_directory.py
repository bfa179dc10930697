"""Starting services where the current directory was removed, or a program's own is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

import forebay
from tests.pool.conftest import PoolOf
from tests.pool.scripts import ECHO, python
from tests.pool.services import Echo


def test_a_removed_directory_keeps_no_service_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`subprocess` starts programs there as well: a child inherits it, and need not enter it."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with forebay.ServicePool(max_size=2) as pool:
        with pool.acquire(Echo) as echo:
            assert echo.echo(3) == 3
        with pool.acquire(python(tmp_path, ECHO)) as program:
            assert program.lease.pid > 0


def test_a_directory_that_cannot_be_entered_is_named(pool_of: PoolOf, tmp_path: Path) -> None:
    """The kernel's "No such file or directory" alone sounds as if the program were missing."""
    missing = tmp_path / "missing"
    command = forebay.Command(["/bin/sleep", "60"], ready="started", cwd=str(missing))
    with (
        pool_of(max_size=1) as pool,
        pytest.raises(forebay.Error, match=f"working directory {missing} cannot be entered"),
        pool.acquire(command),
    ):
        pass
