"""What was said in protocol 1 is understood by today's server and by today's client."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.executor import AsyncClient, Client
from tests.executor.compat.player import RecordedServer, play_client
from tests.executor.compat.record import root, serving
from tests.executor.compat.scenes import OF_A_STRANGER, OF_THE_CLIENT, OF_THE_LOOP
from tests.executor.compat.transcript import CALL, Transcript

HERE = Path(__file__).parent / "1"
CALLS = {
    *("submit", "run", "accepted", "wait", "taken", "cancel", "logs", "events"),
    *("info", "manifest", "status", "show", "why", "list", "resolve", "arguments", "retry"),
    *("prune", "workers", "services", "schedules", "set_schedule", "top", "reload", "stop"),
}
SCENES = [*OF_THE_CLIENT, *OF_THE_LOOP, *OF_A_STRANGER]


@pytest.fixture
def directory() -> Iterator[Path]:
    made = root()
    yield made
    shutil.rmtree(made)


def test_every_call_was_recorded() -> None:
    """A call that is in no transcript may change without anybody noticing."""
    said = set()
    for name in SCENES:
        pieces = Transcript.read(HERE / f"{name}.txt").pieces
        said |= {piece.head[0] for piece in pieces if piece.kind == CALL}
    assert said >= CALLS


@pytest.mark.parametrize("name", SCENES)
def test_a_client_of_protocol_1_is_served(directory: Path, name: str) -> None:
    """Programs of the last version go on while the server is replaced."""
    with serving(directory) as server:
        play_client(Transcript.read(HERE / f"{name}.txt"), server.socket, directory)


@pytest.mark.parametrize("name", OF_THE_CLIENT)
def test_a_server_of_protocol_1_is_understood(directory: Path, name: str) -> None:
    """A client that was installed first gets its results from the server that still runs."""
    transcript = Transcript.read(HERE / f"{name}.txt")
    server = RecordedServer(transcript, directory)
    with Client(f"unix://{server.path}", timeout=30.0) as client:
        assert OF_THE_CLIENT[name](client) == transcript.seen
    server.finish()


@pytest.mark.parametrize("name", OF_THE_LOOP)
def test_a_server_of_protocol_1_is_understood_on_a_loop(directory: Path, name: str) -> None:
    """The same for the client of an event loop."""
    transcript = Transcript.read(HERE / f"{name}.txt")
    server = RecordedServer(transcript, directory)
    client = AsyncClient(f"unix://{server.path}", timeout=30.0)
    assert OF_THE_LOOP[name](client) == transcript.seen
    server.finish()
