"""Requests that wait in a worker behind another one: nobody notices, whatever that one does."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import forebay
from tests.executor.serving import Caller, RefusedError, Serving

PATIENCE_S = 20.0

APP = """
import os
import time

import forebay

app = forebay.App("ahead")


def note(text, path):
    with open(path, "a") as file:
        file.write(text + "\\n")


@app.request(ahead=16)
def work(number: int, path: str = "", do: str = "", out: str = "") -> int:
    if path:
        note(str(number), path)
    if out:
        print(out, flush=True)
        os.write(1, b"and more\\n")
    if do == "leave":
        os._exit(9)
    if do.startswith("wait"):
        while not os.path.exists(do[5:]):
            time.sleep(0.01)
    return number
"""


def warm(caller: Caller) -> None:
    """Until it is known that they are short, nothing is handed."""
    for number in range(3):
        assert caller.run("work", number=number) == number


def test_each_one_has_its_own_output(tmp_path: Path) -> None:
    """The next one prints before the server has heard of the end of the last one."""
    with Serving(tmp_path, APP, max_workers=1) as serving, serving.caller() as caller:
        warm(caller)
        begun = [caller.begin("work", number=one, out=f"this is {one}") for one in range(120)]
        ids = [caller.taken(call) for call in begun]
        assert [caller.wait(id) for id in ids] == list(range(120))
        (logs,) = tmp_path.glob("state/**/logs")
        told = [(logs / f"{id}.log").read_text() for id in ids]
        assert told == [f"this is {one}\nand more\n" for one in range(120)]


def test_nothing_waits_behind_a_long_one(tmp_path: Path) -> None:
    """What was handed comes back, and runs where there is room."""
    gate = tmp_path / "gate"
    serving = Serving(tmp_path, APP, max_workers=2, short_workers=0, long_workers=1)
    with serving, serving.caller() as caller:
        warm(caller)
        long = caller.begin("work", number=0, do=f"wait {gate}")
        begun = [caller.begin("work", number=one) for one in range(1, 20)]
        ids = [caller.taken(call) for call in begun]
        assert [caller.wait(id) for id in ids] == list(range(1, 20))
        gate.touch()
        assert caller.wait(caller.taken(long)) == 0


def test_a_death_is_one_requests_and_the_others_run_once(tmp_path: Path) -> None:
    """Those behind it had not begun: without retries they run all the same, and once."""
    ran = tmp_path / "ran"
    with Serving(tmp_path, APP, max_workers=1) as serving, serving.caller() as caller:
        warm(caller)
        begun = [
            caller.begin("work", number=one, path=str(ran), do="leave" if one % 10 == 3 else "")
            for one in range(40)
        ]
        ids = [caller.taken(call) for call in begun]
        for one, id in enumerate(ids):
            if one % 10 == 3:
                with pytest.raises(RefusedError, match="exit"):
                    caller.wait(id)
            else:
                assert caller.wait(id) == one
        assert sorted(map(int, ran.read_text().split())) == list(range(40))


def test_a_cancelled_one_never_runs(tmp_path: Path) -> None:
    """It lies in a worker that runs something else, which goes on."""
    gate, ran = tmp_path / "gate", tmp_path / "ran"
    with Serving(tmp_path, APP, max_workers=1) as serving, serving.caller() as caller:
        warm(caller)
        first = caller.begin("work", number=0, do=f"wait {gate}")
        begun = [caller.begin("work", number=one, path=str(ran)) for one in range(1, 9)]
        ids = [caller.taken(call) for call in begun]
        for id in ids[:4]:
            assert caller.ask("cancel", id) in ("now", "asked")
        gate.touch()
        assert caller.wait(caller.taken(first)) == 0
        for id in ids[:4]:
            with pytest.raises(RefusedError, match="cancelled"):
                caller.wait(id)
        assert [caller.wait(id) for id in ids[4:]] == [5, 6, 7, 8]
        assert ran.read_text().split() == ["5", "6", "7", "8"]


def wait_for(path: str) -> str:
    """Wait for what another call makes."""
    deadline = time.monotonic() + PATIENCE_S
    while not os.path.exists(path):
        assert time.monotonic() < deadline, f"nobody made {path}"
        time.sleep(0.01)
    return path


def touch(path: str) -> str:
    """Make what others wait for."""
    Path(path).touch()
    return path


def test_a_call_may_wait_for_one_that_was_submitted_after_it(tmp_path: Path) -> None:
    """In an executor of two a call waits for the second one, wherever that one was put."""
    with forebay.Executor(2) as executor:
        list(executor.map(abs, range(100)))
        for round in range(20):
            path = str(tmp_path / f"made {round}")
            shorts = [executor.submit(abs, one) for one in range(30)]
            waits = executor.submit(wait_for, path)
            others = [executor.submit(abs, one) for one in range(10)]
            made = executor.submit(touch, path)
            assert waits.result(PATIENCE_S) == path
            assert [one.result(PATIENCE_S) for one in shorts] == list(range(30))
            assert [one.result(PATIENCE_S) for one in others] == list(range(10))
            assert made.result(PATIENCE_S) == path


def test_a_call_that_computes_outside_python_is_waited_for() -> None:
    """Where the handler of the signal cannot run, nothing is given back and nothing is lost."""
    with forebay.Executor(1) as executor:
        list(executor.map(abs, range(100)))
        busy = [executor.submit(sum, range(3_000_000)) for _ in range(6)]
        quick = [executor.submit(abs, one) for one in range(50)]
        assert [one.result(PATIENCE_S) for one in quick] == list(range(50))
        assert {one.result(PATIENCE_S) for one in busy} == {sum(range(3_000_000))}
