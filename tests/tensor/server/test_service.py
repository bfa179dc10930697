"""Servers as services: of a pool, and of an application."""

from __future__ import annotations

import ctypes
import select
import subprocess
import sys
from pathlib import Path

import pytest

import forebay
from forebay.errors import ConfigError
from forebay.tensor import Tensor, TensorClient, TensorServer
from tests.tensor.client.test_names import numbered
from tests.tensor.contents import same
from tests.tensor.shards import PATIENCE_S, until, url_in


def test_shards_in_processes_of_a_pool(tmp_path: Path) -> None:
    """A pool starts the shards, and ends them with its program."""
    tensors = {"rows": Tensor((101, 2), "i8", initial=numbered)}
    specs = [
        TensorServer.spec(tensors, url_in(tmp_path), shard=shard, shards=2) for shard in range(2)
    ]
    with forebay.ServicePool(max_size=2) as pool:
        with pool.acquire(specs[0]) as first, pool.acquire(specs[1]) as second:
            urls = [shard.describe()["url"] for shard in (first, second)]
            assert first.lease.pid != second.lease.pid
            with TensorClient(urls) as client:
                assert same(client.pull("rows"), numbered(0, 101))
                client.push("rows", [0, 100], 7, "add")
                assert same(
                    client.pull("rows", [100, 0, 1])[:, 0],
                    numbered(0, 101)[[100, 0, 1], 0] + [7, 7, 0],
                )
                second.publish("more", Tensor((4, 1)))
                assert first.metrics()["peers"] == 1
        with pool.acquire(specs[0]) as again, TensorClient(urls[0]) as client:
            assert again.describe()["tensors"]["rows"]["rows"] == 50
            assert client.pull("rows", 0)[0] == 7, "a lease that ended kept the rows"


def test_an_application_keeps_one_service_for_each_shard(tmp_path: Path) -> None:
    """The server of an application keeps the shards warm; requests know where they are."""
    app = forebay.App("training")
    spec = TensorServer.spec({"rows": Tensor((10, 2))}, url_in(tmp_path))
    app.service(spec, name="ps", shards=2)
    assert [service.min_idle for service in app.services] == [1, 1]
    first, second = app.specs("ps")
    assert isinstance(first, forebay.Spec)
    assert first.kwargs == {"shard": 0, "shards": 2}
    with (
        forebay.ServicePool(max_size=2) as pool,
        pool.acquire(first) as one,
        pool.acquire(second) as other,
    ):
        assert [each.describe()["shard"] for each in (one, other)] == [0, 1]
        with TensorClient(url_in(tmp_path), shards=2) as client:
            assert client.pull("rows").shape == (10, 2)


def test_shards_need_no_url() -> None:
    """The default is a socket for each: whoever starts two need not think about paths."""
    tensors = {"rows": Tensor((10, 2), "i8", initial=numbered)}
    specs = [TensorServer.spec(tensors, shard=shard, shards=2) for shard in range(2)]
    with (
        forebay.ServicePool(max_size=2) as pool,
        pool.acquire(specs[0]) as one,
        pool.acquire(specs[1]) as other,
        TensorClient([each.describe()["url"] for each in (one, other)]) as client,
    ):
        assert same(client.pull("rows"), numbered(0, 10))


def test_what_has_no_shards_is_refused() -> None:
    """Told at the declaration, not when the server starts."""
    app = forebay.App("training")
    with pytest.raises(ConfigError, match="takes no shard= and shards="):
        app.service(Adder, shards=2)
    with pytest.raises(ConfigError, match="is a program"):
        app.service(forebay.Command(["cat", "{fd}"]), shards=2)
    with pytest.raises(ConfigError, match="shards is 0"):
        app.service(TensorServer, shards=0)
    app.service(Adder, name="adder")
    with pytest.raises(ConfigError, match="has a service 'adder' already"):
        app.service(TensorServer, name="adder")
    assert app.specs("adder") == (Adder,)
    with pytest.raises(ConfigError, match="no service 'ps'; it has adder"):
        app.specs("ps")


class Adder(forebay.Service):
    """A service without shards."""

    def add(self, one: int, other: int) -> int:
        """Add."""
        return one + other


def test_a_server_of_a_program_serves_while_python_computes(tmp_path: Path) -> None:
    """The thread that answers takes no lock of the interpreter, which a call in C holds here.

    The client is another process; the lock is held until it has said that all is answered.
    """
    url = f"unix://{tmp_path}/server.sock"
    program = (
        "import sys\n"
        "from forebay.tensor import TensorClient\n"
        f"with TensorClient({url!r}, fabric='stream', liveness=1000) as client:\n"
        "    client.tensor('rows')\n"
        "    sys.stdout.write('r'); sys.stdout.flush(); sys.stdin.readline()\n"
        "    for number in range(50):\n"
        "        client.push('rows', 3, number)\n"
        "        assert (client.pull('rows')[3] == number).all()\n"
        "    sys.stdout.write('d'); sys.stdout.flush()\n"
    )
    with (
        TensorServer({"rows": Tensor((10, 2))}, url) as server,
        subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as client,
    ):
        assert repr(server) == f"<TensorServer at {url}>"
        assert client.stdin is not None
        assert client.stdout is not None
        assert client.stdout.read(1) == b"r"
        client.stdin.write(b"\n")
        client.stdin.flush()
        assert readable_with_the_lock(client.stdout.fileno()), "it waited for the interpreter"
        assert client.stdout.read(1) == b"d"
        client.stdin.close()
        assert client.wait(PATIENCE_S) == 0
        until(lambda: server.metrics()["peers"] == 0)
    server.close()


class _PollDescriptor(ctypes.Structure):
    _fields_ = (
        ("fd", ctypes.c_int),
        ("events", ctypes.c_short),
        ("revents", ctypes.c_short),
    )


def readable_with_the_lock(descriptor: int) -> bool:
    """Wait until it can be read, by poll(2), and hold the interpreter's lock meanwhile."""
    asked = _PollDescriptor(descriptor, select.POLLIN, 0)
    poll = ctypes.PyDLL(None).poll  # PyDLL keeps the lock, which CDLL lets go of
    return bool(poll(ctypes.byref(asked), 1, int(PATIENCE_S * 1000)) == 1)
