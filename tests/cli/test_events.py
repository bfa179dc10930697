"""`forebay events` prints what happens, until it is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forebay.cli.commands.events import KINDS, line
from forebay.executor.client.client import Client
from tests.executor.client_fixtures import client, server
from tests.executor.small_server import SmallServer

__all__ = ["client", "server"]

ROOT = Path(__file__).resolve().parents[2]
EVENT = {
    "seq": 7,
    "at_ms": 1_795_000_000_042,
    "event": "ended",
    "id": "000000000001",
    "name": "tune",
    "status": "failed",
    "attempt": 2,
    "cause": None,
}


@contextmanager
def events(server: SmallServer, *options: str) -> Iterator[subprocess.Popen[str]]:
    """The command, which goes on until it is interrupted."""
    with subprocess.Popen(
        [sys.executable, "-m", "forebay.cli", "events", "--url", server.url, *options],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_events_are_printed_as_they_happen_until_ctrl_c(
    server: SmallServer, client: Client
) -> None:
    """A line each, with the request and the fields of the kind."""
    client.submit("echo")
    with events(server, "--since-start", "--event", "ended") as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first.split()[1:] == ["ended", "000000000001", "echo", "status=succeeded"]
        client.submit("echo")
        assert "000000000002" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130


def test_events_are_objects_for_a_program(server: SmallServer, client: Client) -> None:
    """With the number by which it goes on."""
    client.submit("raise")
    client.submit("echo")
    with events(server, "--since", "0", "--name", "echo", "--json") as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
    assert told["schema"] == 1
    assert (told["seq"], told["event"], told["name"]) == (3, "accepted", "echo")


def test_a_line_has_the_time_the_request_and_what_is_known() -> None:
    """What is not known is left out."""
    clock, *words = line(EVENT, color=False).split()
    assert clock.endswith(".042")
    assert words == ["ended", "000000000001", "tune", "status=failed", "attempt=2"]
    gap = {"event": "gap", "first": 3, "last": 9}
    assert line(gap, color=False) == "gap: events 3 to 9 are lost"


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_the_command_is_one_of_the_server(kind: str) -> None:
    """A kind that the server does not know would be refused."""
    source = (ROOT / "crates/executor/src/feed/event.rs").read_text()
    assert f'=> "{kind}"' in source
