"""`forebay doctor` tells what works here, and what to change."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import pytest

from forebay.cli import doctor_checks, main
from forebay.cli.doctor_server import NETWORK, file_system
from tests.pool.shared.lender import Lending


def told(capsys: pytest.CaptureFixture[str], path: Path) -> dict[str, dict[str, str | None]]:
    main(["doctor", "--json", "--path", str(path)])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(row["schema"] == 1 for row in rows)
    return {row["name"]: row for row in rows}


def test_what_the_pool_needs_works_here(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """These tests run on such a machine, so nothing that is needed may be missing."""
    rows = told(capsys, tmp_path / "none.sock")
    for name in ("python", "extension", "kernel", "pidfd", "memfd", "descriptor passing"):
        assert rows[name]["state"] == "ok", rows[name]
    assert not [row for row in rows.values() if row["state"] == "missing"]


def test_limits_are_those_of_this_process(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A limit that is told wrongly sends its reader the wrong way."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        row = told(capsys, tmp_path / "none.sock")["open files"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert row["state"] == "note"
    assert str(row["value"]).startswith("512 ")
    assert row["next"] == "raise it: ulimit -n 1024"


def test_a_lender_is_found(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The first question of whoever gets no service is whether one runs."""
    path = tmp_path / "lent" / "pool.sock"
    row = told(capsys, path)["shared pool"]
    assert (row["state"], row["next"]) == (
        "note",
        f"no shared pool at {path}; start one: forebay serve",
    )
    with Lending(path) as lending:
        row = told(capsys, path)["shared pool"]
    assert row["state"] == "ok"
    assert f"process {lending.pid}" in str(row["value"])


def test_what_is_missing_is_an_exit_code_with_a_next_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A script that prepares a machine stops there."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "not" / "there"))
    assert main(["doctor", "--path", str(tmp_path / "none.sock")]) == 1
    shown = capsys.readouterr()
    assert "missing  runtime directory" in shown.out
    assert "runtime directory: unset XDG_RUNTIME_DIR" in shown.err


def test_an_old_kernel_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs one learns which version to go to."""
    monkeypatch.setattr(doctor_checks.platform, "release", lambda: "5.10.0-9-amd64")
    rows = {row.name: row for row in doctor_checks.findings(os.devnull + "/none")}
    assert (rows["kernel"].state, rows["kernel"].next) == ("missing", "use Linux 5.15 or later")


def test_a_state_directory_on_a_network_is_refused() -> None:
    """SQLite's locks do not hold there, and requests would be lost."""
    mounts = "/dev/sda / ext4 rw 0 0\nhost:/x /mnt/far\\040away nfs4 rw 0 0\n"
    assert file_system(Path("/home/me"), mounts) == "ext4"
    assert file_system(Path("/mnt/far away/state"), mounts) == "nfs4"
    assert file_system(Path("/mnt/far away/state"), mounts) in NETWORK


def test_what_a_server_needs_is_looked_at(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a setting that nobody knows is told here, too."""
    monkeypatch.setenv("FOREBAY_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("FOREBAY_EXECUTOR_DRIAN_GRACE", "5s")
    rows = told(capsys, tmp_path / "none.sock")
    assert rows["state directory"]["state"] in ("ok", "note")
    assert str(tmp_path) in (rows["state directory"]["value"] or "")
    assert "FOREBAY_EXECUTOR_DRAIN_GRACE" in (rows["configuration"]["value"] or "")
    assert rows["out of memory"]["state"] in ("ok", "note")
