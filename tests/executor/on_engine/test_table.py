"""The table of what does not run on an engine, and that servers run there which are to."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay.executor import Client
from forebay.executor.client import local
from tests.executor.client_fixtures import client_of_serving, serving
from tests.executor.on_engine.table import EXECUTOR, Row, rendered, rows
from tests.executor.serving import ROOT, wait_gone
from tests.skip_list import TESTS

__all__ = ["client_of_serving", "serving"]

PAGE = ROOT / "docs/concepts/executor/engine_tests.md"
APP = """
import forebay

app = forebay.App("placed")


@app.request(lane="short")
def add(a: int) -> int:
    return a + 1
"""


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.tests[0])
def test_a_row_is_of_tests_that_exist(row: Row) -> None:
    """A row of a test that went allows what nobody meant."""
    for one in (*row.tests, *filter(None, [row.instead])):
        file, _, function = one.partition("::")
        text = (EXECUTOR / file).read_text()
        assert not function or re.search(rf"def {function}\(", text), one


def test_the_page_has_the_table() -> None:
    """`python -m tests.executor.on_engine.table` writes it."""
    assert rendered() in PAGE.read_text()


def test_a_row_has_what_it_names_and_nothing_else() -> None:
    """A whole file, or one test of it; and it is allowed to be skipped for that reason alone."""
    row = Row(("a/test_b.py", "a/test_c.py::test_d"), "because")
    assert row.has(EXECUTOR / "a/test_b.py", "test_any")
    assert row.has(EXECUTOR / "a/test_c.py", "test_d")
    assert not row.has(EXECUTOR / "a/test_c.py", "test_e")
    assert not row.has(TESTS / "a/test_b.py", "test_any")
    assert row.allowed().matches("executor/a/test_c.py", "on an engine: because")
    assert not row.allowed().matches("executor/a/test_c.py", "because")
    assert not row.allowed().matches("executor/a/test_f.py", "on an engine: because")


@pytest.fixture
def is_on_engine(request: pytest.FixtureRequest) -> bool:
    """Whether this run has the option."""
    return request.config.getoption("--engine", default=None) is not None


def engine_of(client: Client) -> Any:
    """What a server says of its engine, once it has run something."""
    assert client.run("add", a=1) == 2
    return client.info()["engine"]


def test_a_server_of_a_test_is_on_the_engine(client: Client, *, is_on_engine: bool) -> None:
    """Otherwise a run with the option shows nothing."""
    told = engine_of(client)
    assert (told is not None) == is_on_engine
    if is_on_engine:
        assert os.environ["FOREBAY_EXECUTOR_SCHEDULER"] in told["cluster"]


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An application without a server; one that a client starts is ended afterwards."""
    runtime = tempfile.mkdtemp(prefix="fb-", dir="/tmp")  # a socket's path is short
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    monkeypatch.setenv("FOREBAY_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "python"), str(ROOT)]))
    file = tmp_path / "app.py"
    file.write_text(APP)
    yield file
    for pid in list(local._started):
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
        local._started.remove(pid)
    shutil.rmtree(runtime)


def test_so_is_one_that_a_client_starts(app: Path, *, is_on_engine: bool) -> None:
    """By the environment that it inherits."""
    with Client(app=str(app), timeout=60.0) as client:
        assert (engine_of(client) is not None) == is_on_engine


def test_so_is_one_of_the_command(app: Path, *, is_on_engine: bool) -> None:
    """`forebay serve`, which says so first."""
    command = [sys.executable, "-m", "forebay.cli", "serve", str(app), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ) as process:
        assert process.stdout is not None
        events = []
        while (told := json.loads(process.stdout.readline()))["event"] != "ready":
            events.append(told["event"])
        process.terminate()
        process.communicate(timeout=30)
    wait_gone(process.pid)
    assert ("engine" in events) == is_on_engine
