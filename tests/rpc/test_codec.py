"""The decoder of msgpack calls, against peers that lie about sizes and segments."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from msgspec import msgpack

from forebay import rpc
from forebay.errors import RemoteError
from forebay.rpc import Channel
from forebay.rpc._codec import MSGPACK
from tests.mutation import drive

from .conftest import ROOT
from .network_server import TOKEN

ARRAY, ARRAY_SEGMENT, BYTES_SEGMENT = 1, 2, 3
MIB = 1 << 20


class RemoteServer:
    """A server over TCP in a process of its own, and a channel to it."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.rpc.network_server", "tcp://127.0.0.1:0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        self.channel = rpc.connect(self.url, token=TOKEN).open()

    def peak_bytes(self) -> int:
        """The most memory that the server has had resident at once."""
        with open(f"/proc/{self.process.pid}/status") as status:
            lines = dict(line.split(":", 1) for line in status)
        return int(lines["VmHWM"].split()[0]) << 10

    def call(self, head: bytes, segments: list[Any] | None = None) -> Any:
        """The answer to a call of these bytes."""
        channel: Channel = self.channel
        outcome = channel._connection.call(channel._number, head, segments, 20, 0)
        return (
            channel._decode(outcome, None) if type(outcome) is bytes else channel._finish(outcome)
        )

    def close(self) -> None:
        self.channel.close()
        self.process.communicate(timeout=20)


@pytest.fixture(scope="module")
def server() -> Iterator[RemoteServer]:
    """A server that has decoded an array before: numpy is loaded and counted already."""
    server = RemoteServer()
    assert server.channel.call("length", (np.zeros(3),)) == 3
    yield server
    server.close()


def extension(code: int, *fields: Any) -> msgpack.Ext:
    """An extension as a hostile peer writes it."""
    return msgpack.Ext(code, msgpack.encode(fields))


def call(*args: Any) -> bytes:
    """The head of a call of `length`."""
    return msgpack.encode(("length", args, None))


@pytest.mark.parametrize("dtype", ["u1", "<f8"])
def test_a_size_in_the_place_of_content_allocates_nothing(server: RemoteServer, dtype: str) -> None:
    """A stranger's 30 bytes must not fill the memory of a server."""
    size = 512 * MIB
    head = call(extension(ARRAY, dtype, [size // np.dtype(dtype).itemsize], size))
    assert len(head) < 40
    before = server.peak_bytes()
    with pytest.raises(RemoteError, match="content of an array is int, not bytes"):
        server.call(head)
    assert server.peak_bytes() - before < 64 * MIB
    assert server.channel.call("length", ("abc",)) == 3


def test_a_time_of_no_units_is_refused(server: RemoteServer) -> None:
    """There numpy makes such an array, and then fails at whatever is done with it."""
    with pytest.raises(RemoteError, match=r"M8\[0s\]"):
        server.call(call(extension(ARRAY, "<M8[0s]", [1], bytes(8))))
    assert server.channel.call("length", ("abc",)) == 3


@pytest.mark.parametrize("code", [BYTES_SEGMENT, ARRAY_SEGMENT])
def test_a_segment_is_named_once(server: RemoteServer, code: int) -> None:
    """A few bytes that name one segment many times must not copy it many times."""
    segment = bytes(8 * MIB)
    fields = (0,) if code == BYTES_SEGMENT else ("u1", [len(segment)], 0)
    head = call([extension(code, *fields) for _ in range(50)])
    before = server.peak_bytes()
    with pytest.raises(RemoteError, match="segment 0 is named twice"):
        server.call(head, [segment])
    assert server.peak_bytes() - before < 64 * MIB
    assert server.call(call(extension(code, *fields)), [segment]) == len(segment)


@pytest.mark.parametrize("index", [-1, 1, 2**63, True, 1.0, None, "0", [0]])
def test_an_index_that_names_no_segment_is_refused(server: RemoteServer, index: Any) -> None:
    """A negative index would count from the end, and name a segment a second time."""
    with pytest.raises(RemoteError, match="is no segment"):
        server.call(call(extension(BYTES_SEGMENT, index)), [bytes(MIB)])
    assert server.channel.call("length", ("abc",)) == 3


@pytest.mark.parametrize(
    "fields",
    [
        ("O", [1], bytes(8)),
        ("u1,u1", [1], bytes(2)),
        ("(1000,)u1", [1], bytes(1000)),
        ({"names": ["a"], "formats": ["u1"], "itemsize": 1 << 30}, [0], b""),
        ([["a", "u1"]], [1], b"1"),
        (None, [1], bytes(8)),
        (("u1", 1), [1], b"1"),
    ],
)
def test_elements_that_are_no_data_are_refused(server: RemoteServer, fields: Any) -> None:
    """Objects, records and nested arrays are never sent, so a peer that sends them lies."""
    with pytest.raises(RemoteError, match="is no data"):
        server.call(call(extension(ARRAY, *fields)))


def corpus() -> list[tuple[bytes, list[bytes]]]:
    """Heads of every form that the encoder makes, with their segments, and hostile ones."""
    values: list[Any] = [
        ("echo", (1, 2.5, None, True, "text", b"bytes", {"a": [1, {}]}), None),
        ("echo", (np.arange(6).reshape(2, 3), np.zeros(0), np.float32(3)), {"by": np.ones(3)}),
        ("echo", (np.zeros(1 << 14), bytes(1 << 16), bytearray(1 << 16)), {"x": -(2**40)}),
        ("echo", [[[[[[]]]]]], {}),
    ]
    found = []
    for value in values:
        head, segments = MSGPACK.encode_call(*value)
        found.append((head, [bytes(segment) for segment in segments or ()]))
    big = 1 << 28
    hostile = [extension(1, "u1", [big], big), extension(3, -1), extension(2, "u1", [big], 0)]
    hostile += [extension(1, "S1000000000", [0], b""), extension(1, "u1", [0, big], b"")]
    found += [(call(one, one), [bytes(1 << 12)]) for one in hostile]
    found.append((b"\xdd\x7f\xff\xff\xff\xdf\x7f\xff\xff\xff", []))
    return found


def test_mutated_heads_end_in_a_value_or_a_refusal_within_their_size() -> None:
    """Whatever bytes come, the decoder says no or gives a value, and allocates by what came."""
    np.frombuffer(b"1", np.dtype("u1")).reshape([1])
    drive(MSGPACK.decode, corpus())
