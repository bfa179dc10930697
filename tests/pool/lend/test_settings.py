"""Where the settings of pools come from."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import forebay
from forebay.config import KINDS, PoolConfig
from tests.executor.serving import ROOT

VALUES = {"count": 3, "time": 7.0, "size": 5_000_000}


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory without a configuration."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", KINDS["pool"])
def test_each_setting_comes_from_argument_environment_file_and_default(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`forebay config` shows them; a value that is shown and not used misleads."""

    def used(**given: object) -> object:
        with forebay.ServicePool(**given) as pool:  # type: ignore[arg-type]
            return getattr(pool.config, name)

    value = VALUES[KINDS["pool"][name]]
    assert used() == getattr(PoolConfig(), name)
    (tmp_path / "forebay.toml").write_text(f"[pool]\n{name} = {value}\n")
    assert used() == value
    monkeypatch.setenv(f"FOREBAY_POOL_{name.upper()}", str(int(value) + 1))
    assert used() == value + 1
    assert used(**{name: value + 2}) == value + 2


def test_a_wrong_setting_names_its_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of a service file is not in the program that it breaks."""
    monkeypatch.setenv("FOREBAY_POOL_IDLE_TIMEOUT", "soon")
    with pytest.raises(forebay.ConfigError, match=r"pool\.idle_timeout, from FOREBAY_POOL_IDLE"):
        forebay.ServicePool()


def test_text_with_a_unit_is_an_argument_too() -> None:
    """As in every other place where a time or a size is given."""
    with forebay.ServicePool(idle_timeout="30s", max_memory="1MB", max_size="4") as pool:  # type: ignore[arg-type]
        assert (pool.config.idle_timeout, pool.config.max_memory) == (30.0, 1_000_000)
        assert pool.config.max_size == 4


def test_a_lender_uses_them(tmp_path: Path) -> None:
    """`forebay serve` without an application is a pool as well; its options come first."""
    environment = os.environ | {
        "FOREBAY_POOL_MAX_SIZE": "5",
        "FOREBAY_POOL_IDLE_TIMEOUT": "7",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), *sys.path]),
    }
    for options, size in (([], 5), (["--max-size", "3"], 3)):
        with subprocess.Popen(
            [
                *(sys.executable, "-m", "forebay.cli", "serve", "--json"),
                *("--path", str(tmp_path / "lent" / "pool.sock"), *options),
            ],
            stdout=subprocess.PIPE,
            env=environment,
            cwd=tmp_path,
        ) as process:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["max_size"] == size
            process.send_signal(signal.SIGTERM)


def test_every_field_has_a_parameter() -> None:
    """A setting that no argument overrides cannot be chosen by a program."""
    import inspect

    parameters = set(inspect.signature(forebay.ServicePool).parameters)
    assert {one.name for one in dataclasses.fields(PoolConfig)} <= parameters


def test_a_number_of_numpy_is_a_count_and_a_bool_is_none() -> None:
    """`max_size=np.int64(4)` comes of any arithmetic on counts of processors."""
    config = PoolConfig(max_size=np.int64(4))  # type: ignore[arg-type]
    assert config.max_size == 4
    assert type(config.max_size) is int
    with pytest.raises(forebay.ConfigError, match="max_size is True"):
        PoolConfig(max_size=True)
