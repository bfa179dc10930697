"""Tensors whose rows are the records of a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay.blockio import RecordFile
from forebay.errors import BrokenError, ConfigError, LimitError, OutOfRangeError, StaleError
from forebay.tensor import FileTensor, TensorClient, TensorServer
from tests.tensor.contents import ASKED, CONTENTS, picked, same
from tests.tensor.faces import FACES, face_of
from tests.tensor.server.record_files import pages, write
from tests.tensor.shards import PATIENCE_S, ROOT, serving, url_in

pytestmark = pytest.mark.usefixtures("queue_of_the_test")


@pytest.mark.parametrize("checksums", [False, True], ids=["plain", "checksums"])
@pytest.mark.parametrize("face_name", FACES)
def test_rows_are_those_of_the_file(tmp_path: Path, face_name: str, checksums: bool) -> None:
    """Whatever is asked for comes as from an array, by every face and of every dtype."""
    kinds = {name: rows for name, rows in CONTENTS.items() if len(rows)}
    tensors = {
        name: FileTensor(write(tmp_path / name.replace(" ", "_"), rows, checksums=checksums))
        for name, rows in kinds.items()
    }
    with serving(tmp_path, tensors, 2), face_of(face_name, url_in(tmp_path), shards=2) as face:
        for name, rows in kinds.items():
            for asked in ASKED.values():
                assert same(face.call("pull", name, asked), picked(rows, asked)), (name, asked)


@pytest.mark.parametrize("direct", [True, False, None])
def test_a_pull_in_pieces_and_into_given_memory(tmp_path: Path, direct: bool | None) -> None:
    """Sixteen pieces of unsorted rows, some of them twice."""
    table = pages(2000)
    path = write(tmp_path / "pages", table)
    with RecordFile(path) as records:
        if direct and not records.direct:
            pytest.skip("this file system has no direct I/O")
    asked = np.random.default_rng(3).integers(0, 2000, 4000)
    with (
        TensorServer({"pages": FileTensor(path, direct=direct)}) as server,
        TensorClient(server.url) as client,
    ):
        out = np.empty(4000, table.dtype)
        client.pull("pages", asked, out=out)
        assert same(out, table[asked])
        assert same(client.pull("pages"), table)


def test_many_clients_with_little_staging_memory(tmp_path: Path) -> None:
    """They wait for each other's memory, and every row is right."""
    table = pages(1000)
    path = write(tmp_path / "pages", table)
    with TensorServer(
        {"pages": FileTensor(path), "held": np.arange(10)}, staging_bytes="256KiB"
    ) as server:

        def work(number: int) -> None:
            random = np.random.default_rng(number)
            with TensorClient(server.url, piece_bytes="64KiB") as client:
                for _ in range(20):
                    asked = random.integers(0, 1000, 50)
                    found, held = client.pull_many([("pages", asked), "held"])
                    assert same(found, table[asked])
                    assert same(held, np.arange(10))

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(work, range(8)))


@pytest.mark.parametrize(("staging", "rows"), [("100KB", 24), (70_001, 17)])
def test_staging_memory_need_not_be_whole_pages(
    tmp_path: Path, staging: str | int, rows: int
) -> None:
    """A size in decimal units is no reason to serve no file at all."""
    table = pages(100)
    path = write(tmp_path / "pages", table)
    with (
        TensorServer({"pages": FileTensor(path)}, staging_bytes=staging) as server,
        TensorClient(server.url) as client,
    ):
        assert same(client.pull("pages", slice(0, rows), timeout=PATIENCE_S), table[:rows])


def test_more_than_the_staging_memory_is_refused_by_name(tmp_path: Path) -> None:
    """A server with too little memory for a piece says which setting that is."""
    path = write(tmp_path / "pages", pages(100))
    with (
        TensorServer({"pages": FileTensor(path)}, staging_bytes="64KiB") as server,
        TensorClient(server.url) as client,
    ):
        with pytest.raises(LimitError, match="staging_bytes"):
            client.pull("pages")
        assert client.pull("pages", [3])["number"] == [3]


def test_nobody_writes_it(tmp_path: Path) -> None:
    """Pushes are refused, the owner's too, and what is there stays."""
    table = np.arange(40, dtype="f4").reshape(10, 4)
    tensor = FileTensor(write(tmp_path / "rows", table))
    with TensorServer({"rows": tensor}) as server, TensorClient(server.url) as client:
        for op in ("set", "add"):
            with pytest.raises(ConfigError, match="read-only"):
                client.push("rows", 2, np.ones(4, "f4"), op)
        with pytest.raises(ConfigError, match="read-only"):
            server.write("rows", 2, 1)
        with pytest.raises(ConfigError, match="in a file"):
            server.array("rows")
        with pytest.raises(OutOfRangeError):
            client.pull("rows", 10)
        assert same(client.pull("rows"), table)


@pytest.mark.parametrize("direct", [False, None])
def test_a_truncated_file_fails_the_pull_alone(tmp_path: Path, direct: bool | None) -> None:
    """The error names file, row and errno; rows that are there are still served."""
    table = pages(100)
    path = write(tmp_path / "pages", table)
    with (
        TensorServer({"pages": FileTensor(path, direct=direct)}) as server,
        TensorClient(server.url) as client,
    ):
        os.truncate(path, 12_288 + 50 * 4096)
        with pytest.raises(BrokenError) as caught:
            client.pull("pages", [3, 70, 2])
        for part in ("row 70 of", str(path), "errno 61"):
            assert part in str(caught.value)
        assert same(client.pull("pages", [49, 0]), table[[49, 0]])


def test_a_shard_names_rows_as_the_file_does(tmp_path: Path) -> None:
    """Its own range begins elsewhere; messages count from the file's first record."""
    path = write(tmp_path / "pages", pages(100), checksums=True)
    with RecordFile(path) as records:
        at = records.layout.offset(80)
    with path.open("r+b") as file:
        file.seek(at + 100)
        file.write(b"\0water")
    with (
        serving(tmp_path, {"pages": FileTensor(path)}, 3),
        TensorClient(url_in(tmp_path), shards=3) as client,
        pytest.raises(BrokenError, match=r"row 80 of .*checksum"),
    ):
        client.pull("pages", [1, 80, 99])


def test_what_was_appended_since_comes_with_the_next_publish(tmp_path: Path) -> None:
    """Rows are those of the moment when it was published; handles from before are refused."""
    path = write(tmp_path / "rows", np.zeros((3, 2), "f4"))
    with TensorServer({"rows": FileTensor(path)}) as server, TensorClient(server.url) as client:
        before = client.tensor("rows")
        with RecordFile(path, mode="a") as records:
            records.append(np.ones((2, 2), "f4"))
            assert client.pull(before).shape == (3, 2)
            server.publish("rows", FileTensor(records))
        with pytest.raises(StaleError):
            client.pull(before)
        assert client.pull("rows")[:, 0].tolist() == [0, 0, 0, 1, 1]


def test_files_that_cannot_be_served(tmp_path: Path) -> None:
    """What is no record file, or has rows that move, is refused when it is published."""
    circular = write(tmp_path / "circular", np.zeros((3, 2), "f4"), capacity=100)
    plain = tmp_path / "plain"
    plain.write_bytes(bytes(50_000))
    with TensorServer() as server:
        with pytest.raises(ConfigError, match="circular"):
            server.publish("rows", FileTensor(circular))
        with pytest.raises(ConfigError, match="no record file"):
            server.publish("rows", FileTensor(plain))
        with pytest.raises(FileNotFoundError):
            server.publish("rows", FileTensor(tmp_path / "nowhere"))


def test_descriptors_go_with_the_tensor(tmp_path: Path) -> None:
    """A dropped table closes its file."""
    path = write(tmp_path / "pages", pages(10))

    def is_open() -> bool:
        links = Path("/proc/self/fd").iterdir()
        return any(os.path.realpath(link) == str(path.resolve()) for link in links)

    with TensorServer({"pages": FileTensor(path)}) as server:
        assert is_open()
        server.drop("pages")
        assert not is_open()


PROGRAM = """
import signal, sys
from forebay.tensor import FileTensor, TensorServer
with TensorServer({"pages": FileTensor(sys.argv[1])}) as server:
    print(server.url, flush=True)
    signal.pause()
"""


def test_a_server_that_is_killed_while_it_reads(tmp_path: Path) -> None:
    """Every pull ends, with its rows or with an error that names the server."""
    table = pages(2000)
    path = write(tmp_path / "pages", table)
    command = [sys.executable, "-c", PROGRAM, str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        random = np.random.default_rng(5)
        with TensorClient(url) as client:
            asked = [random.integers(0, 2000, 500) for _ in range(40)]
            futures: list[Any] = [client.submit("pull", "pages", rows) for rows in asked]
            assert same(futures[0].result(PATIENCE_S), table[asked[0]])
            process.send_signal(signal.SIGKILL)
            for rows, future in zip(asked, futures, strict=True):
                error = future.exception(PATIENCE_S)
                if error is None:
                    assert same(future.result(), table[rows])
                else:
                    assert isinstance(error, BrokenError)
                    assert url.partition("://")[2] in str(error)
