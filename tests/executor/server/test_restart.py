"""A server that was killed, and the next one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.executor.serving import Caller, RefusedError, Serving, until

APP = (Path(__file__).parent / "server_app.py").read_text()
RESUME_S = 15.0
"""A second on an idle machine; tests share theirs with others."""


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """Where requests note that they ran."""
    made = tmp_path / "notes"
    made.mkdir()
    return made


def cause_of(caller: Caller, id: str) -> str | None:
    """Why a request has failed; None where it has succeeded."""
    try:
        caller.wait(id)
    except RefusedError as refused:
        return str(refused.told["cause"])
    return None


def runs(path: Path) -> int:
    return path.read_text().count("ran") if path.exists() else 0


def test_every_accepted_request_is_there_again_and_no_process_is_left(
    tmp_path: Path, notes: Path
) -> None:
    """What begun and may not run twice has failed with its cause; everything else runs, once."""
    serving = Serving(tmp_path, APP, long_workers=2, max_workers=3)
    try:
        serving.start()
        with serving.caller() as caller:
            paths = {}
            for index in range(20):
                path = notes / str(index)
                paths[caller.submit("mark", path=str(path), seconds=0.2)] = path
            first = next(iter(paths.values()))
            until(lambda: runs(first))
        serving.kill()  # and waits for every process below it
        begun = {id for id, path in paths.items() if runs(path)}
        began = time.monotonic()
        serving.start()
        with serving.caller() as caller:
            queued = next(id for id in paths if id not in begun)
            caller.wait(queued)
            assert time.monotonic() - began < RESUME_S
            for id, path in paths.items():
                cause = cause_of(caller, id)
                assert cause is None or (cause == "server" and id in begun)
                assert runs(path) == 1
    finally:
        serving.close()


def test_what_may_run_again_does(tmp_path: Path, notes: Path) -> None:
    """`retries` is the permission, and the attempts are counted."""
    path, gate = notes / "one", tmp_path / "gate"
    serving = Serving(tmp_path, APP)
    try:
        serving.start()
        with serving.caller() as caller:
            id = caller.submit("persist", path=str(path), gate=str(gate))
            until(lambda: runs(path))
        serving.kill()
        gate.touch()
        serving.start()
        with serving.caller() as caller:
            assert isinstance(caller.wait(id), int)
            assert runs(path) == 2
            told = caller.ask("show", id)
            assert told["attempts"] == 2
            (lost,) = told["runs"]
            assert lost["failure"]["cause"] == "server"
    finally:
        serving.close()


def test_what_an_operator_retried_has_its_retries_again(tmp_path: Path, notes: Path) -> None:
    """It failed after a restart: its runs before the retry counted again."""
    path, gate = notes / "one", tmp_path / "gate"
    serving = Serving(tmp_path, APP)
    try:
        serving.start()
        with serving.caller() as caller:
            id = caller.submit("persist", path=str(path), gate=str(gate))
            for begun in range(1, 4):
                until(lambda begun=begun: runs(path) == begun)
                caller.ask("cancel", id)
                with pytest.raises(RefusedError):
                    caller.wait(id)
                assert caller.ask("retry", [id]) == [{"id": id, "status": "queued"}]
            until(lambda: runs(path) == 4)
        serving.kill()
        gate.touch()
        serving.start()
        with serving.caller() as caller:
            assert isinstance(caller.wait(id), int)
            assert runs(path) == 5
    finally:
        serving.close()
