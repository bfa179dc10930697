"""A server that takes no submissions for a while, and is not to end."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay.executor import Client
from tests.executor.serving import Caller, RefusedError, Serving, until

APP = (Path(__file__).parent / "server_app.py").read_text()


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    with Serving(tmp_path, APP, long_workers=1, max_workers=2) as serving:
        yield serving


def refusal(caller: Caller) -> dict[str, Any]:
    """Why a submission is refused."""
    with pytest.raises(RefusedError) as caught:
        caller.submit("add", a=1)
    return caught.value.told


def busy(caller: Caller, tmp_path: Path) -> tuple[Path, str, str]:
    """One request that runs until a file is there, and one behind it."""
    note, gate = tmp_path / "note", tmp_path / "gate"
    running = caller.submit("mark", path=str(note), gate=str(gate))
    until(note.exists)
    waiting = caller.submit("mark", path=str(tmp_path / "second"))
    return gate, running, waiting


def test_a_cordon_refuses_and_lets_go_on(serving: Serving, tmp_path: Path) -> None:
    """What was accepted runs; who comes is told who asked for it, why, and what undoes it."""
    with serving.caller() as caller:
        gate, running, waiting = busy(caller, tmp_path)
        told = caller.ask("cordon", "a new kernel")["cordon"]
        assert (told["reason"], told["dispatches"]) == ("a new kernel", True)
        assert told["by"].startswith("uid:")
        refused = refusal(caller)
        assert refused["code"] == "draining"
        assert refused["message"].endswith("has cordoned the server: a new kernel")
        assert refused["next"].endswith("forebay cordon --undo")
        assert caller.ask("info")["figures"]["cordon"] == told
        gate.touch()
        assert isinstance(caller.wait(running), int)
        assert isinstance(caller.wait(waiting), int)
        assert caller.ask("uncordon")["undone"] is True
        assert caller.ask("uncordon")["undone"] is False
        assert caller.run("add", a=1) == 3


def test_a_drained_server_begins_nothing(serving: Serving, tmp_path: Path) -> None:
    """What runs ends, what waits says why, and runs after the drain was undone."""
    with serving.caller() as caller:
        gate, running, waiting = busy(caller, tmp_path)
        caller.ask("cordon", "", False)
        gate.touch()
        assert isinstance(caller.wait(running), int)
        figures = caller.ask("info")["figures"]
        assert "drains the server" in figures["held"]
        assert figures["unfinished"] == 1
        assert "drains the server" in caller.ask("why", waiting)["reason"]
        assert not (tmp_path / "second").exists()
        caller.ask("uncordon")
        assert isinstance(caller.wait(waiting), int)


def test_a_key_that_is_known_gets_its_request(serving: Serving) -> None:
    """A client that repeats a submission was accepted before."""
    with serving.caller() as caller:
        first = caller.submit("add", {"idempotency": "order 17"}, a=1)
        caller.ask("cordon", "")
        assert caller.submit("add", {"idempotency": "order 17"}, a=1) == first


def test_a_cordon_ends_with_its_server(serving: Serving) -> None:
    """A machine that was rebooted serves as it always does after a boot."""
    with serving.caller() as caller:
        caller.ask("cordon", "", False)
        assert refusal(caller)["code"] == "draining"
    serving.kill()
    serving.start()
    with serving.caller() as caller:
        assert caller.ask("info")["figures"]["cordon"] is None
        assert caller.run("add", a=1) == 3


def test_the_feed_tells_of_it(serving: Serving) -> None:
    """A dashboard shows it without asking."""
    with Client(f"unix://{serving.socket}", timeout=20) as client:
        events = client.follow(events=["server"])
        told: list[dict[str, Any]] = []

        def read() -> None:
            for event in events:
                told.append(event)
                if event["state"] == "uncordoned":
                    return

        reader = threading.Thread(target=read)
        reader.start()
        client.ask("cordon", "a new disk", False)
        client.ask("uncordon")
        reader.join(20)
        assert not reader.is_alive()
    assert [event["state"] for event in told] == ["cordoned", "uncordoned"]
    assert told[0]["reason"].endswith("drains the server: a new disk")


def test_an_idle_server_of_a_command_keeps_its_cordon(tmp_path: Path) -> None:
    """The next command would start a server without one."""
    with Serving(tmp_path, APP, ends_when_idle=True, idle_timeout=0.5) as serving:
        with serving.caller() as caller:
            caller.ask("cordon", "")
        assert serving.process is not None
        with pytest.raises(subprocess.TimeoutExpired):
            serving.process.wait(3)
        with serving.caller() as caller:
            caller.ask("uncordon")
        serving.ended()
