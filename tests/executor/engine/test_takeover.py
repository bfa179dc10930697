"""A take-over while a run on a node submits children: it gets every answer."""

from __future__ import annotations

from pathlib import Path

import pytest

import forebay
from tests.executor.serving import Serving, until

APP = """
import os
import forebay

app = forebay.App("parents")

@app.request
def add(a: int) -> int:
    return a + 1

@app.request
def parent(ctx: forebay.Context, begun: str, gate: str) -> list[int]:
    children, number = [], 0
    while not os.path.exists(gate):
        children += [ctx.submit(add, number + one) for one in range(8)]
        number = len(children)
        open(begun, "w").close()
        for child in children[-4:]:
            child.result(timeout=60)
    return [child.result(timeout=60) for child in children]
"""


def test_a_parent_gets_the_answers_to_all_that_it_submits(tmp_path: Path) -> None:
    """What the old server has read it answers, and the rest goes to the next one."""
    pytest.importorskip("distributed")
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    with (
        Serving(tmp_path, APP, engine="dask") as serving,
        forebay.Client(f"unix://{serving.socket}", start=False) as client,
    ):
        parent = client.submit("parent", begun=str(begun), gate=str(gate))
        until(begun.exists)
        successor = serving.replace()
        try:
            assert client.info()["pid"] == successor.pid
            begun.unlink()
            until(begun.exists)  # it submits to the next server
            gate.touch()
            results = parent.result(timeout=60)
            assert results == list(range(1, len(results) + 1))
            assert parent.show()["attempts"] == 1
            assert serving.ended() == 0
        finally:
            successor.close()
