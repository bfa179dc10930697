"""Which fabric is chosen where there is no RDMA device, or one side does without."""

from __future__ import annotations

from typing import Any

import pytest

from forebay import _core
from forebay.cli.doctor.checks import findings
from forebay.errors import ConfigError
from forebay.memory import Arena
from forebay.tensor import TensorClient, TensorServer
from tests.tensor.conftest import TABLE
from tests.tensor.contents import same

DEVICES = _core.rdma_devices()
without_device = pytest.mark.skipif(not isinstance(DEVICES, str), reason="there is an RDMA device")


@without_device
@pytest.mark.parametrize(
    ("url", "options"),
    [("tcp://127.0.0.1:7001", {"fabric": "verbs"}), ("verbs://127.0.0.1:7001", {})],
)
def test_verbs_are_refused_with_what_is_missing(url: str, options: Any) -> None:
    """Whoever asks for verbs learns what to install, before anything is connected."""
    with Arena("1MiB") as arena:
        with pytest.raises(ConfigError, match="RDMA") as told:
            TensorClient(url, arena=arena, **options)
        assert str(DEVICES) in str(told.value)
        with pytest.raises(ConfigError, match="RDMA"):
            TensorServer({}, url.replace("7001", "0"), **options)


def test_verbs_need_an_arena() -> None:
    """Rows are written into it, and nowhere else."""
    with pytest.raises(ConfigError, match="has no arena"):
        TensorClient("verbs://127.0.0.1:7001")


@pytest.mark.parametrize(
    ("url", "fabric", "told"),
    [
        ("verbs://127.0.0.1:7001", "stream", "leave one of them out"),
        (["verbs://127.0.0.1:7001", "tcp://127.0.0.1:7002"], None, "not all URLs do"),
    ],
)
def test_a_url_that_contradicts_is_refused(url: Any, fabric: str | None, told: str) -> None:
    """A fabric that is chosen twice is a mistake."""
    with pytest.raises(ConfigError, match=told):
        TensorClient(url, fabric=fabric)


@pytest.mark.parametrize("fabric", ["auto"], indirect=True)
@pytest.mark.parametrize("mine", ["stream", "auto"])
def test_auto_goes_by_what_there_is(mine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without memory and without a device the connection carries everything, and says why."""
    monkeypatch.setenv("FOREBAY_TENSOR_FABRIC", "stream")
    with TensorServer({"table": TABLE}) as server, Arena("1MiB") as arena:
        monkeypatch.setenv("FOREBAY_TENSOR_FABRIC", "auto")
        with TensorClient(server.url, arena=arena, fabric=mine) as client:
            assert same(client.pull("table"), TABLE)
            told = client.metrics()
    assert told["fabric"].startswith("stream: ")
    assert told["verbs_pulls"] == 0
    assert ("no verbs: the server offers none" in told["fabric"]) == (mine == "auto")


def test_a_server_without_a_device_refuses_in_words() -> None:
    """A client with a device learns that the server is what lacks one."""
    with TensorServer({"table": TABLE}) as server:
        lifeline = _core.tensor_hello(16)[:12] + (4).to_bytes(4, "little") + bytes(44)
        from forebay.transport import connect

        connection = connect(server.url).open()
        try:
            connection.send([lifeline], timeout=10)
            answer = bytes(connection.recv(timeout=10)[0])
        finally:
            connection.abort()
    assert b"this server serves no RDMA verbs" in answer


def test_the_doctor_says_what_there_is() -> None:
    """A line for it; a machine that has none, and is not asked for one, works as well as it can."""
    (row, *_) = [row for row in findings(None) if row.name == "RDMA verbs"]
    if isinstance(DEVICES, str):
        assert row.state == "ok"
        assert row.value == f"none: {DEVICES}; tensors go over TCP between machines"
    else:
        assert DEVICES[0][0] in row.value
