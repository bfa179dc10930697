"""Where shards are, what settings do, and who is let in."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay.config import KINDS, TensorConfig
from forebay.configuration import find_configuration
from forebay.errors import BrokenError, ConfigError, ProtocolError
from forebay.tensor import TensorClient, TensorServer
from forebay.tensor.server.addresses import address_of, addresses
from forebay.transport import Tls, listen, native
from tests.tensor.conftest import TABLE
from tests.tensor.contents import same
from tests.tensor.faces import FACES, face_of
from tests.tensor.shards import ROOT, serving, url_in
from tests.transport.certificates import Authority


def test_addresses_of_shards() -> None:
    """One URL stands for all shards, by their number or by their ports."""
    assert addresses("tcp://host:7001", 3) == [f"tcp://host:{port}" for port in (7001, 7002, 7003)]
    assert addresses("tls://[::1]:7001", 2) == ["tls://[::1]:7001", "tls://[::1]:7002"]
    assert addresses("unix:///run/ps-{shard}.sock", 2) == [
        "unix:///run/ps-0.sock",
        "unix:///run/ps-1.sock",
    ]
    assert addresses("tcp://ps-{shard}:7001", 2) == ["tcp://ps-0:7001", "tcp://ps-1:7001"]
    assert addresses(["tcp://a:1", "tcp://b:2"], None) == ["tcp://a:1", "tcp://b:2"]
    assert address_of("tcp://127.0.0.1:0", 1, 4) == "tcp://127.0.0.1:0"


@pytest.mark.parametrize(
    ("url", "shards", "message"),
    [
        ("unix:///run/ps.sock", 2, "put {shard} into it"),
        ("tcp://127.0.0.1:0", 2, "would have one address"),
        ("tcp://127.0.0.1:65535", 2, "would listen on port 65536"),
        (["tcp://a:1"], 2, "1 URLs are given for 2 shards"),
        ([], None, "no URL"),
        ("shm:///run/ps.sock", None, "tensors go over tcp"),
        ("water", None, "no scheme"),
    ],
)
def test_addresses_that_cannot_be(url: Any, shards: int | None, message: str) -> None:
    """Told when the client is made, not when it first connects."""
    with pytest.raises(ConfigError, match=message):
        TensorClient(url, shards=shards)


def test_the_guide_lists_every_setting() -> None:
    """What no page names is found by nobody."""
    guide = (ROOT / "docs/guides/parameter_server.md").read_text()
    table = guide.partition("## Settings")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(KINDS["tensor"])


@pytest.mark.parametrize(
    "wrong",
    [{"slots": 0}, {"slots": 2000}, {"liveness": 0}, {"piece_bytes": "9 litres"}, {"shards": 0}],
)
def test_settings_that_cannot_be(wrong: dict[str, Any]) -> None:
    """A wrong setting is refused by name."""
    with pytest.raises(ConfigError):
        TensorClient("tcp://127.0.0.1:7001", **wrong)


def test_settings_come_from_the_configuration() -> None:
    """A variable decides where no argument does."""
    environment = {"FOREBAY_TENSOR_SLOTS": "4", "FOREBAY_TENSOR_PIECE_BYTES": "64KiB"}
    found = find_configuration(environment=environment).tensor
    assert (found.slots, found.piece_bytes) == (4, 65536)
    assert find_configuration({"tensor.slots": 3}, environment=environment).tensor.slots == 3
    assert TensorConfig().slots == 16
    with pytest.raises(ConfigError, match="FOREBAY_TENSOR_SLOTS"):
        find_configuration(environment={"FOREBAY_TENSOR_SLOTS": "0"})


@pytest.mark.parametrize("face_name", FACES)
def test_over_tls_with_a_token(tmp_path: Path, face_name: str) -> None:
    """Beyond this machine nobody reads along, and nobody unknown is let in."""
    authority = Authority(tmp_path / "ca")
    signed = authority.sign("server")
    table = np.arange(2_000_000, dtype="f4").reshape(2000, 1000)
    with TensorServer(
        {"table": table},
        "tls://127.0.0.1:0",
        token="water",
        tls={"cert": signed.cert, "key": signed.key},
    ) as server:
        tls = Tls.client(ca=authority.ca)
        with face_of(face_name, server.url, tls=tls, token="water") as face:
            assert same(face.call("pull", "table"), table)
            face.call("push", "table", slice(5, 500), 1.5)
            assert same(face.call("pull", "table", [5, 500, 4]), np.stack(
                [np.full(1000, 1.5, "f4"), table[500], table[4]]
            ))  # fmt: skip
        for token, why in [("wine", "that is another token"), (None, "none was shown")]:
            with face_of(face_name, server.url, tls=tls, token=token) as face:
                with pytest.raises(BrokenError, match=why) as caught:
                    face.call("pull", "table")
                assert caught.value.delivered == "no"
        assert same(server.array("table")[500], table[500])


@pytest.mark.parametrize("face_name", FACES)
@pytest.mark.parametrize("scheme", ["tcp", "unix"])
def test_a_wrong_token_is_told_as_such(tmp_path: Path, scheme: str, face_name: str) -> None:
    """Whoever mistyped a token does not look for a broken network, and the server goes on."""
    url = f"unix://{tmp_path}/a.sock" if scheme == "unix" else "tcp://127.0.0.1:0"
    with TensorServer({"table": TABLE}, url, token="water") as server:
        for token, why in [("wine", "that is another token"), (None, "none was shown")]:
            with face_of(face_name, server.url, token=token) as face:
                for _ in range(20):  # it does not depend on who is faster
                    with pytest.raises(BrokenError, match=why) as caught:
                        face.call("pull", "table")
                    assert server.url in str(caught.value)
        with face_of(face_name, server.url, token="water") as face:
            assert same(face.call("pull", "table"), TABLE)
        assert server.metrics()["refused"] == 40


def test_other_machines_need_a_token() -> None:
    """A table that anybody in the network could change is not served by accident."""
    with pytest.raises(ConfigError, match="can be reached from other machines"):
        TensorServer({}, "tcp://0.0.0.0:0")
    with TensorServer({"table": TABLE}, "tcp://0.0.0.0:0", unprotected=True) as server:
        port = server.url.rpartition(":")[2]
        with TensorClient(f"tcp://127.0.0.1:{port}") as client:
            assert same(client.pull("table"), TABLE)


def test_what_is_no_tensor_server_is_told(tmp_path: Path) -> None:
    """A client at the wrong door does not wait for ever."""
    url = f"unix://{tmp_path}/a.sock"
    with (
        listen(url, native=native.Echo()),
        TensorClient(url) as client,
        pytest.raises(ProtocolError),
    ):
        client.pull("table", timeout=10)


def test_one_slot_is_enough(tmp_path: Path) -> None:
    """Fewer slots are slower, and nothing else."""
    with (
        serving(tmp_path, {"table": TABLE}, 2) as _,
        TensorClient(url_in(tmp_path), shards=2, slots=1) as client,
    ):
        found = client.pull_many([("table", [row, 99 - row]) for row in range(100)])
        for row, rows in enumerate(found):
            assert same(rows, TABLE[[row, 99 - row]])


@pytest.mark.parametrize("slots", [-1, 0, 1025, 1 << 70, 2.5, "4", None])
@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_slots_that_a_server_cannot_grant(tmp_path: Path, kind: str, slots: Any) -> None:
    """Refused before it listens: nothing of it is left, and its place is free."""
    url = f"unix://{tmp_path}/server.sock" if kind == "unix" else "tcp://127.0.0.1:0"
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ConfigError, match="slots is"):
        TensorServer({}, url, slots=slots)
    assert len(os.listdir("/proc/self/fd")) == before
    with TensorServer({}, url, slots=1024) as server:
        assert server.metrics()["peers"] == 0


def test_metrics_have_all_keys_before_the_first_call() -> None:
    """The guide says to look at `metrics()["fabric"]`; asked early it answered with a KeyError."""
    with (
        TensorServer({"table": np.zeros((4, 2))}) as server,
        TensorClient(server.url) as client,
    ):
        before = client.metrics()
        client.pull("table", 1)
        assert set(before) == set(client.metrics())
        assert before["fabric"] == "none: nothing is connected yet"
        assert client.metrics()["fabric"] != before["fabric"]
        assert before["connections"] == before["outstanding"] == 0
