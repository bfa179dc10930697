"""Ids of several servers: each has its number in them, and a store goes on in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.config import ExecutorConfig
from forebay.errors import ConfigError
from forebay.executor.wire.ids import number_of
from tests.executor.serving import Serving

APP = """
import forebay

app = forebay.App("numbers")


@app.request()
def echo(first: int = 1) -> int:
    return first
"""
SERVERS = 64


def submitted(serving: Serving, count: int = 50) -> list[str]:
    """Ids of requests, in the order of their acceptance."""
    with serving.caller() as caller:
        return [caller.submit("echo") for _ in range(count)]


def test_a_server_gives_ids_of_its_number_in_order(tmp_path: Path) -> None:
    """Its number may change between two starts: what is older sorts before what is newer."""
    found: list[str] = []
    serving = Serving(tmp_path, APP)
    try:
        for number in (0, 63, 7):
            serving.settings["server_number"] = number
            serving.start()
            ids = submitted(serving)
            assert {number_of(id_) % SERVERS for id_ in ids} == {number}
            found += ids
            serving.kill()
    finally:
        serving.close()
    assert found == sorted(set(found))


@pytest.mark.parametrize("number", [-1, SERVERS])
def test_a_number_beyond_six_bits_is_refused(number: int) -> None:
    """It would be another server's."""
    with pytest.raises(ConfigError, match="server_number"):
        ExecutorConfig(server_number=number)
