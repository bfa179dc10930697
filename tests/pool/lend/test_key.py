from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay.pool import Line, Started
from tests.pool.scripts import run, write

SLEEPER = [sys.executable, "-I", "-c", "import signal; signal.pause()"]


def key(**options: Any) -> object:
    """What makes a program interchangeable."""
    return forebay.Command(**{"arguments": SLEEPER, "stdio": True, **options}).key


def connect(started: Started) -> object:
    """A connect function that is found again."""
    return started


def test_what_is_described_alike_is_alike() -> None:
    """Not the description counts, but what it says."""
    assert key(connect=connect) == key(connect=connect)
    assert key(ready=Line("a")) == key(ready=Line("a"))


CHANGES: dict[str, dict[str, Any]] = {
    "argument": {"arguments": [*SLEEPER, "x"]},
    "order": {"arguments": [*SLEEPER[:1], "-S", *SLEEPER[1:]]},
    "environment": {"env": {"COLOUR": "green"}},
    "directory": {"cwd": "/"},
    "readiness": {"ready": Line("ready")},
    "reuse": {"reuse": False},
    "client": {"connect": connect},
}


@pytest.mark.parametrize("what", list(CHANGES))
def test_whatever_changes_a_program_is_in_its_key(what: str) -> None:
    """Nobody gets a program that was started otherwise."""
    assert key(**CHANGES[what]) != key()


def test_arguments_keep_their_order() -> None:
    """Those of the original were a set, and differed from run to run."""
    assert key(arguments=[*SLEEPER, "a", "b"]) != key(arguments=[*SLEEPER, "b", "a"])


def test_a_variable_of_this_process_that_changed_means_another_program(
    pool: forebay.ServicePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The original reused the old service; what only tells terminals apart does not count."""
    command = forebay.Command(["cat"], stdio=True)
    with pool.acquire(command) as backend:
        first = backend.lease.pid
    monkeypatch.setenv("COLUMNS", "123")
    with pool.acquire(command) as backend:
        assert backend.lease.pid == first
    monkeypatch.setenv("SERVICE_ARGS", "--fast")
    with pool.acquire(command) as backend:
        assert backend.lease.pid != first
        environment = Path(f"/proc/{backend.lease.pid}/environ").read_bytes()
    assert b"SERVICE_ARGS=--fast" in environment


def test_another_file_under_the_same_name_is_another_program(tmp_path: Path) -> None:
    """A program that was built anew is started anew."""
    program = tmp_path / "program"
    shutil.copy("/bin/cat", program)
    before = forebay.Command([str(program)], stdio=True).key
    other = tmp_path / "other"
    shutil.copy("/bin/cat", other)
    os.replace(other, program)
    assert forebay.Command([str(program)], stdio=True).key != before


def test_how_long_anybody_waits_is_in_no_key(pool: forebay.ServicePool) -> None:
    """A client's own timeout is no reason for another service; in the original it was."""
    command = forebay.Command(["cat"], stdio=True)
    pids = set()
    for timeout in (5, 6, None):
        with pool.acquire(command, timeout=timeout) as backend:
            pids.add(backend.lease.pid)
    assert len(pids) == 1


PRINT_KEY = """
    import sys
    sys.path.insert(0, {directory!r})
    from engine import Engine
    print(Engine.spec(1).key)
"""


def test_the_version_of_its_source_is_in_the_key_of_a_class(tmp_path: Path) -> None:
    """Programs of different versions of a module do not mean the same service."""
    source = "import forebay\nclass Engine(forebay.Service):\n    def __init__(self, n): ...\n"
    printer = write(tmp_path / "print_key.py", PRINT_KEY.format(directory=str(tmp_path)))
    keys = []
    for text in (source, source, source + "# changed\n"):
        module = tmp_path / "engine.py"
        if not module.exists() or module.read_text() != text:
            module.write_text(text)
        told = run(printer, cwd=tmp_path)
        assert told.returncode == 0, told.stderr
        keys.append(told.stdout)
    assert keys[0] == keys[1] != keys[2]
    assert "engine.py" in keys[0]


def test_a_connector_that_cannot_be_compared_is_refused() -> None:
    """It would be another program at each acquire."""

    class Unhashable:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, started: Started) -> object:
            return started

    with pytest.raises(forebay.ConfigError, match="frozen dataclass"):
        key(connect=Unhashable())


def test_a_command_does_not_change_with_what_it_was_made_of() -> None:
    """Its list and its dictionary are copied."""
    arguments, env = list(SLEEPER), {"COLOUR": "green"}
    command = forebay.Command(arguments, env=env, stdio=True)
    before = command.key
    arguments.append("x")
    env["COLOUR"] = "red"
    assert (command.key, command.env["COLOUR"]) == (before, "green")
