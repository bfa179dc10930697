"""One request that uses everything that a pool lends: the program of the guide, on a server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import forebay
from examples.grpc_backend.__main__ import WORDS
from examples.one_request.app import ARRAY_BYTES, COPIES
from examples.stdio_backend.__main__ import TOOLS
from tests.executor.serving import Serving, until

APP = """
import forebay
import numpy
from examples.one_request.app import Notebook, app

@app.request()
def sent(ctx: forebay.Context) -> int:
    array = numpy.ones(10 << 20, numpy.uint8)
    with ctx.acquire(Notebook) as notebook:
        channel = notebook.lease._record.channel
        for _ in range(3):
            before = channel.metrics()["sent_bytes"]
            assert notebook.total(array) == 10 << 20
        return channel.metrics()["sent_bytes"] - before
"""


@pytest.mark.leaks(reason="grpcio keeps its threads and descriptors for good")
def test_one_request_uses_every_kind_of_service(tmp_path: Path) -> None:
    """A Python service, a gRPC program, a stdio program, eight copies, ten megabytes."""
    serving = Serving(tmp_path, APP, long_workers=1, pool_max_size=4)
    with serving, serving.caller() as caller:
        first = caller.run("study", words=["dataclass", "wraps"], seed=1)
        assert first["counts"]["dataclass"] > 10
        assert first["places"]["wraps"].startswith("functools.py")
        assert len(set(first["copies"])) == COPIES
        assert len(first["scores"]) == COPIES
        assert first["array_sum"] == ARRAY_BYTES
        assert caller.run("sent") < 1000
        there = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        again = caller.run("study", words=["dataclass", "wraps"], seed=1)
        assert again["scores"] == first["scores"]
        # All three were warm. The server and the first request may have started a notebook each.
        assert set(again["services"]) <= there
        assert not set(again["copies"]) & set(first["copies"])
        assert until(lambda: not any(map(_lives, first["copies"])))


def test_without_a_server_it_lends_from_a_pool_of_its_own() -> None:
    """A request is a function, and a pool is a pool."""
    call = "from examples.one_request.app import study; print(study(['wraps'], 1)['places'])"
    command = [sys.executable, "-c", call]
    environment = os.environ | {"FOREBAY_POOL_MAX_SIZE": "3"}  # on however few cores
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert "functools.py" in ended.stdout, ended.stderr


def test_a_program_that_keeps_a_session_cannot_be_kept_ready_for_others() -> None:
    """It would be started by the server and be of use to no request."""
    app = forebay.App("tests")
    with pytest.raises(forebay.ConfigError, match="give min_idle=0"):
        app.service(TOOLS)
    app.service(TOOLS, min_idle=0)
    app.service(WORDS)


def _lives(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")
