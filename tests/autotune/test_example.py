"""The example through a real server: what it prints, leaves and shows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from examples.autotune import __main__ as command
from examples.autotune.app import learn
from examples.autotune.policy import WAYS
from examples.autotune.server import served

ROOT = Path(__file__).parents[2]
PNG = b"\x89PNG\r\n\x1a\n"
SMALL: dict[str, Any] = {"rounds": 2, "episodes": 2, "explored": 4, "trials": 5, "steps": 5}
HELD_OUT = ["lz", "sorting"]

pytestmark = [pytest.mark.needs("gcc"), pytest.mark.timeout(150)]


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `served` sets ends with the test."""
    for name in ("FOREBAY_STATE_DIR", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, "set by the example")


def test_a_seed_learns_by_children_and_finds_the_same_again() -> None:
    """Everything is a request or a service of the one server, and the seed decides what comes."""
    with served([]) as (client, folder):
        first = client.submit(learn, seed=3, held_out=HELD_OUT, folder=folder, **SMALL)
        found = first.result().found
        services = {each["name"] for each in client.ask("services")["services"]}
        children = [row["name"] for row in client.list(parent=first.id)]
        again = client.run(learn, seed=3, held_out=HELD_OUT, folder=folder, **SMALL)
    assert {way: [one.program for one in found[way]] for way in WAYS} == dict.fromkeys(
        WAYS, HELD_OUT
    )
    for one in (each for way in WAYS for each in found[way]):
        assert one.trials == 5
        assert one.best_bytes <= one.base_bytes
    assert "Workshop" in services
    assert children.count("explore") == SMALL["rounds"] * SMALL["episodes"]
    assert children.count("judge") == len(WAYS) * len(HELD_OUT)
    for way in WAYS:
        assert [one.improved for one in again.found[way]] == [one.improved for one in found[way]]
    assert again.trials == first.result().trials == 2 * 2 * 3


def test_the_command_ends_with_figures_and_a_picture(tmp_path: Path) -> None:
    """What `make demo-all` shows, on less."""
    picture, figures = tmp_path / "autotune.png", tmp_path / "autotune.json"
    sizes = ["--rounds", "1", "--episodes", "2", "--trials", "4", "--programs", ",".join(HELD_OUT)]
    places = ["--picture", str(picture), "--json", str(figures)]
    done = subprocess.run(
        [sys.executable, "-m", "examples.autotune", "--quick", *sizes, *places],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "seed 1: 10 of 10 requests" in done.stdout
    assert "The learned policy " in done.stdout
    assert picture.read_bytes().startswith(PNG)
    kept = json.loads(figures.read_text())
    assert len(kept["found"]) == len(WAYS) * len(HELD_OUT)


def test_a_server_that_cannot_start_is_told() -> None:
    """Not a client that waits for it for ever."""
    with pytest.raises(RuntimeError, match="ended before it could be used"), served(["--no-such"]):
        pass


def test_it_finds_the_same_on_a_cluster() -> None:
    """Two processes of Dask workers, which `served` starts."""
    small = {**SMALL, "rounds": 1, "trials": 3}
    found = []
    for options in ([], ["--engine", "dask"]):
        with served(options) as (client, folder):
            assert (client.info()["engine"] is None) == (not options)
            came = client.run(learn, seed=3, held_out=HELD_OUT, folder=folder, **small)
        found.append({way: [one.improved for one in came.found[way]] for way in WAYS})
    assert found[0] == found[1]


def test_more_programs_than_there_are_is_told_before_anything_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Not by a child, after a minute."""
    with pytest.raises(SystemExit):
        command.main(["--rounds", "20"])
    assert "take 240 programs; there are 200" in capsys.readouterr().err
