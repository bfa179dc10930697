"""Results above a megabyte: a worker writes the file, a client maps it, the server stays out."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import msgpack

from forebay.errors import BrokenError, ConfigError, DiedError, RemoteError
from forebay.executor.client import result_file
from forebay.executor.client.async_client import AsyncClient
from forebay.executor.client.client import Client
from forebay.executor.wire.parts import decode
from tests.executor.client_fixtures import client_of_serving, serving, small_disk
from tests.executor.serving import Serving, until

__all__ = ["client_of_serving", "serving"]

APP = (Path(__file__).parent / "large_app.py").read_text()
COUNT = 8_000_000
"""Numbers of 64 MB."""
SOME = 250_000
"""Numbers of 2 MB."""


def files_of(serving: Serving) -> list[Path]:
    """What lies in its directory of results."""
    return sorted((serving.file.parent / "state").glob("*/results/*"))


def passed_bytes(pid: int) -> tuple[int, int]:
    """What a process has read and written by system calls, and the most memory that it had."""
    counts = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    status = Path(f"/proc/{pid}/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) * 1024
    return int(counts["rchar"]) + int(counts["wchar"]), peak


def test_a_large_array_never_passes_the_server(serving: Serving, client: Client) -> None:
    """Without that a gigabyte is copied five times, and everybody waits for it."""
    assert client.run("numbers", count=3).tolist() == [0, 1, 2]
    calls, peak = passed_bytes(serving.pid)
    request = client.submit("numbers", count=COUNT)
    array = request.result(timeout=60)
    again = client.get(request.id).result(timeout=60)
    more_calls, more_peak = passed_bytes(serving.pid)
    assert more_calls - calls < 8_000_000
    assert more_peak - peak < 16_000_000
    assert np.array_equal(array, np.arange(COUNT, dtype=np.float64))
    assert np.array_equal(array, again)
    (file,) = files_of(serving)
    assert file.name == request.id
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_mapped_array_is_like_any_other(client: Client) -> None:
    """It may be changed, and nobody else sees that; C code finds it aligned."""
    request = client.submit("mixed", count=SOME)
    value = request.result(timeout=60)
    arrays = [value["wide"], *value["odd"], value["small"]]
    assert all(array.flags.writeable and array.flags.aligned for array in arrays)
    assert np.array_equal(value["wide"], np.arange(SOME, dtype=np.complex128))
    assert np.array_equal(value["odd"][0], np.arange(SOME + 1, dtype=np.uint8))
    assert (value["odd"][1].shape, value["odd"][1].dtype) == ((3, SOME), np.dtype("<i2"))
    assert (value["name"], len(value["text"])) == ("mixed", 1000)
    value["wide"][:] = 7
    assert client.get(request.id).result(timeout=60)["wide"][1] == 1


def test_a_large_result_without_arrays_is_a_file_too(serving: Serving, client: Client) -> None:
    """A document is as large as an array."""
    assert client.run("text", size=2_000_000) == "x" * 2_000_000
    (file,) = files_of(serving)
    assert msgpack.decode(file.read_bytes()) == "x" * 2_000_000


def test_more_results_than_may_be_mapped_are_read(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that keeps a thousand results has descriptors left."""
    monkeypatch.setattr(result_file, "MAPPED_MAX", 1)
    requests = [client.submit("numbers", count=SOME + n) for n in range(3)]
    arrays = [request.result(timeout=60) for request in requests]
    assert len(result_file._mapped) == 1
    assert [array[-1] for array in arrays] == [SOME - 1, SOME, SOME + 1]
    assert all(array.flags.writeable and array.flags.aligned for array in arrays)


def test_the_async_lane_and_the_async_client_do_the_same(serving: Serving) -> None:
    """The file is written beside the loop, from a copy."""

    async def main() -> Any:
        async with AsyncClient(f"unix://{serving.socket}", timeout=20.0) as client:
            requests = await client.submit_many("later", [{"count": SOME + n} for n in range(5)])
            return [await request.result(60) for request in requests]

    arrays = asyncio.run(main())
    assert [len(array) for array in arrays] == [SOME + n for n in range(5)]
    assert all(array[-1] == len(array) - 1 for array in arrays)
    assert len(files_of(serving)) == 5


def test_a_worker_that_dies_before_it_has_told_leaves_nothing(
    serving: Serving, client: Client
) -> None:
    """Each death would cost as much of the disk as its result, until somebody looks."""
    with pytest.raises(DiedError) as caught:
        client.run("die", count=SOME)
    assert caught.value.signal == signal.SIGKILL
    until(lambda: not files_of(serving))
    assert len(client.run("numbers", count=SOME)) == SOME


def test_what_a_server_that_died_has_not_committed_is_pruned_by_the_next(
    serving: Serving, client: Client
) -> None:
    """The orphan of both deaths goes with the others; the request says what happened."""
    request = client.submit("die", count=SOME, pid=serving.pid)
    assert request.id
    serving.ended()
    (orphan,) = files_of(serving)
    assert orphan.name == f"{request.id}.1.new"
    serving.start()
    assert files_of(serving) == []
    with pytest.raises(DiedError) as caught:
        request.result(timeout=20)
    assert caught.value.cause == "server"


def test_a_result_that_is_pruned_before_it_is_opened_is_told_as_that(client: Client) -> None:
    """Not as a file that is missing."""
    request = client.submit("numbers", count=SOME)
    client.get(request.id).result(timeout=60)  # the answer to the first one has come by now
    assert client.prune(ids=request.id)["pruned"] == 1
    with pytest.raises(ConfigError, match=request.id):
        request.result(timeout=20)
    assert isinstance(request.exception(), ConfigError)


def test_a_result_that_cannot_be_read_now_is_asked_for_again(
    serving: Serving, client: Client
) -> None:
    """A disk that failed once took the result for good from the handle that asked then."""
    request = client.submit("numbers", count=SOME)
    until(lambda: client.get(request.id).status() == "succeeded")
    (file,) = files_of(serving)
    kept = file.rename(serving.file.parent / "kept")
    file.mkdir()
    for _ in range(2):
        with pytest.raises(BrokenError, match="cannot be read"):
            request.result(timeout=20)
    file.rmdir()
    kept.rename(file)
    assert len(request.result(timeout=20)) == SOME


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("link", "is not a regular file"),
        ("directory", "is not a regular file"),
        ("name", "has 2 names"),
        ("length", "has 1 bytes instead of"),
        ("nothing", "is not there"),
    ],
)
def test_what_is_not_the_file_that_was_written_is_not_published(
    serving: Serving, client: Client, tmp_path: Path, kind: str, told: str
) -> None:
    """A request whose code plays with the directory harms its own result alone."""
    victim = tmp_path / "victim"
    victim.write_bytes(bytes(8 * SOME))
    request = client.submit("plant", count=SOME, kind=kind, victim=str(victim))
    with pytest.raises(BrokenError, match=told) as caught:
        request.result(timeout=60)
    assert caught.value.delivered == "maybe"
    assert request.status() == "failed"
    assert victim.read_bytes() == bytes(8 * SOME)
    assert victim.stat().st_nlink == 1
    assert [file for file in files_of(serving) if file.name == request.id] == []
    assert len(client.run("numbers", count=SOME)) == SOME


def test_a_full_disk_fails_the_request_by_name(serving: Serving, client: Client) -> None:
    """Nothing else suffers, and nothing is left of what was written."""
    with pytest.raises(OSError, match="request 'limited'") as caught:
        client.run("limited", count=SOME, file_bytes=1_000_000)
    text = str(caught.value)
    assert isinstance(caught.value, RemoteError)
    for part in ("2000", "/results", "free of", "File too large", "forebay prune"):
        assert part in text
    assert files_of(serving) == []
    assert client.run("numbers", count=3).tolist() == [0, 1, 2]


def test_a_disk_without_room_is_one_that_is_full(tmp_path: Path) -> None:
    """A small file system, as the kernel has it."""
    with (
        small_disk(tmp_path, "6m") as state,
        Serving(tmp_path, APP) as serving,
        Client(f"unix://{serving.socket}", timeout=20.0) as client,
    ):
        with pytest.raises(OSError, match=f"file system {state}, .*No space left"):
            client.run("numbers", count=COUNT)
        assert files_of(serving) == []
        assert len(client.run("numbers", count=SOME)) == SOME


def test_who_does_not_see_the_file_is_sent_the_result(serving: Serving, client: Client) -> None:
    """From a container the socket may be in sight, and the state directory not."""
    id_ = client.submit("mixed", count=SOME).id
    client.get(id_).result(timeout=60)
    _, status, payload = client.ask("wait", id_, True)
    assert status == "succeeded"
    assert decode(payload)["wide"][-1] == SOME - 1
    program = (
        f"from forebay import Client\n"
        f"with Client('unix://{serving.socket}') as client:\n"
        f"    print(client.get('{id_}').result()['wide'].sum().real)\n"
    )
    hidden = f"mount -t tmpfs tmpfs {files_of(serving)[0].parent} && exec {sys.executable} -c"
    ran = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f'{hidden} "$0"', program],
        capture_output=True,
        env=serving.environment,
        text=True,
        check=False,
    )
    if "unshare failed" in ran.stderr or "permission denied" in ran.stderr:
        pytest.skip("hiding a directory needs root")
    assert float(ran.stdout) == sum(range(SOME)), ran.stderr


def test_a_client_opens_nothing_but_the_result_that_it_asked_for(tmp_path: Path) -> None:
    """Whatever a server says: no other name, no link, no pipe, no other length."""
    results = tmp_path / "results"
    results.mkdir()
    id_ = "000000000001"
    file = results / id_
    file.write_bytes(b"x" * 100)
    elsewhere = tmp_path / id_
    elsewhere.write_bytes(b"x" * 100)

    def had(path: Path, size: int = 100, of: str = id_) -> bool:
        return result_file.file_of(os.fsencode(path), size, of) is not None

    assert had(file)
    assert not had(file, 99)
    assert not had(file, of="000000000002")
    assert not had(elsewhere)
    file.unlink()
    assert not had(file)
    file.symlink_to(elsewhere)
    assert not had(file)
    file.unlink()
    os.mkfifo(file)
    assert not had(file, 0)
