"""`forebay config`: value and origin of every setting."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forebay.cli import main


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory without a configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    return tmp_path


def test_each_setting_is_shown_with_its_origin(
    capsys: pytest.CaptureFixture[str], somewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that nobody has to guess which of five places decides."""
    (somewhere / "forebay.toml").write_text('app = "tune.py"\n[executor]\ndrain_grace = "5s"\n')
    monkeypatch.setenv("FOREBAY_EXECUTOR_MAX_WORKERS", "3")
    assert main(["config", "executor", "--changed", "--json"]) == 0
    rows = {one["name"]: one for one in map(json.loads, capsys.readouterr().out.splitlines())}
    assert rows["executor.drain_grace"]["value"] == 5.0
    assert rows["executor.drain_grace"]["origin"].endswith("forebay.toml")
    assert rows["executor.max_workers"]["origin"] == "FOREBAY_EXECUTOR_MAX_WORKERS"
    assert set(rows) == {"executor.drain_grace", "executor.max_workers"}
    assert main(["config", "executor.max_deaths"]) == 0
    assert capsys.readouterr().out.split()[-3:] == ["executor.max_deaths", "3", "default"]


def test_a_name_that_nobody_knows_gets_the_nearest(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked for, or in the environment."""
    assert main(["config", "executor.drian"]) == 4
    assert "did you mean 'executor.drain_grace'?" in capsys.readouterr().err
    monkeypatch.setenv("FOREBAY_EXECUTOR_DRIAN_GRACE", "5s")
    assert main(["config", "executor.drain_grace"]) == 0
    assert "FOREBAY_EXECUTOR_DRAIN_GRACE" in capsys.readouterr().err
