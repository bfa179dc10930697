"""`forebay doctor` tells what works here, and what to type where something does not."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

import pytest

from forebay.cli import main
from forebay.cli.doctor.checks import findings
from forebay.cli.doctor.finding import MISSING, NOTE, OK, Finding
from forebay.cli.doctor.server import NETWORK, file_system
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


def test_each_line_that_is_not_ok_ends_with_what_to_type(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A finding without a next step leaves its reader to a search engine."""
    rows = told(capsys, tmp_path / "none.sock")
    main(["doctor", "--path", str(tmp_path / "none.sock")])
    shown = capsys.readouterr()
    assert shown.err == ""
    head, *lines = shown.out.splitlines()
    at = head.index("what")
    for row in rows.values():
        line = next(line for line in lines if line[at:].startswith(f"{row['name']} "))
        assert line.startswith(str(row["state"]))
        if row["state"] == "ok":
            assert row["next"] is None
            assert row["to_type"] is None
        else:
            assert line.endswith(f": {row['to_type']}"), line
            assert str(row["next"]).endswith(f": {row['to_type']}")


@pytest.mark.parametrize(("state", "to_type"), [(NOTE, None), (MISSING, None), (OK, "true")])
def test_a_finding_without_what_to_type_cannot_be_made(state: str, to_type: str | None) -> None:
    """A check that is added later cannot forget it."""
    with pytest.raises(ValueError, match="to type"):
        Finding("something", state, "found", "", to_type)


def test_a_lender_is_found(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The first question of whoever gets no service is whether one runs."""
    path = tmp_path / "lent" / "pool.sock"
    row = told(capsys, path)["shared pool"]
    assert (row["state"], row["value"]) == ("note", f"none at {path}")
    assert row["to_type"] == "forebay serve"
    with Lending(path) as lending:
        row = told(capsys, path)["shared pool"]
    assert row["state"] == "ok"
    assert f"process {lending.pid}" in str(row["value"])


def test_what_is_missing_is_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A script that prepares a machine stops there."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "not" / "there"))
    assert main(["doctor", "--path", str(tmp_path / "none.sock")]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "runtime" in line]
    assert line.startswith("missing  runtime directory")
    assert line.endswith(": unset XDG_RUNTIME_DIR")


def test_an_old_kernel_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs one learns which version to go to, and how to install it."""
    monkeypatch.setattr(platform, "release", lambda: "5.10.0-9-amd64")
    rows = {row.name: row for row in findings(os.devnull + "/none")}
    assert (rows["kernel"].state, rows["kernel"].why) == ("missing", "use Linux 5.15 or later")
    assert "install" in str(rows["kernel"].to_type)


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
    assert rows["configuration"]["to_type"] == "forebay config"
    assert rows["out of memory"]["state"] in ("ok", "note")
