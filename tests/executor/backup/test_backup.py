"""Backups of servers that work, and what a server that starts from one knows."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.errors import Error
from forebay.executor.backup.checking import check_backup
from forebay.executor.client.client import Client
from forebay.executor.client.options import Submit
from tests.executor.backup.backing_up import (
    APP,
    RESULT_BYTES_MAX,
    Load,
    back_up,
    forebay,
    partial_folders,
    served,
    state_of,
)
from tests.executor.serving import Serving, until

BACKUPS = int(os.environ.get("FOREBAY_BACKUPS", "3"))
SAMPLED = 30
"""Requests whose result and log are read, of each backup."""


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """A server whose results become files early."""
    with Serving(tmp_path, APP, max_result_bytes=RESULT_BYTES_MAX) as serving:
        yield serving


@pytest.fixture
def client(serving: Serving) -> Iterator[Client]:
    """A client of it."""
    with Client(f"unix://{serving.socket}", timeout=30.0) as client:
        yield client


def ids_of(client: Client) -> set[str]:
    """All that a server has."""
    found: set[str] = set()
    before = None
    while True:
        page = client.ask("list", {}, 1000, before)
        found |= {row["id"] for row in page["requests"]}
        before = page["next"]
        if before is None:
            return found


@pytest.mark.timeout(60 + 120 * BACKUPS)
def test_each_backup_under_load_starts_and_has_what_was_accepted(
    serving: Serving, tmp_path: Path
) -> None:
    """The promise: each id that was returned before the command began, with its result and log."""
    with Load(serving) as load:
        until(lambda: len(load.accepted()) > 300)
        for number in range(BACKUPS):
            accepted = load.accepted()
            target = tmp_path / f"copy-{number}"
            told = back_up(serving, target)
            assert told.code == 0, told
            with load.resting():
                assert check_backup(target).faults == ()
                with served(serving, target) as client:
                    lost = accepted.keys() - ids_of(client)
                    assert not lost, f"{len(lost)} of {len(accepted)}"
                    for id_ in random.sample(sorted(accepted), SAMPLED):
                        request = client.get(id_)
                        assert request.result(timeout=60) == accepted[id_]
                        if isinstance(accepted[id_], str):
                            assert f"heard {accepted[id_]}\n" in "".join(request.logs())
            shutil.rmtree(target)


def test_what_waits_and_runs_goes_on_as_after_a_crash(
    serving: Serving, client: Client, tmp_path: Path
) -> None:
    """With the secrets of what waits, and without a second run of what may run once."""
    gate = tmp_path / "gate"
    running = [client.submit(name, gate=str(gate)) for name in ("again", "once")]
    until(lambda: all(it.status() == "running" for it in running))
    secret = client.submit("login", password="correct-horse", options=Submit(after=running[:1]))
    told = back_up(serving, tmp_path / "copy")
    assert told.code == 0, told
    assert "secret.key" in told.err
    serving.kill()
    gate.touch()
    with served(serving, tmp_path / "copy") as restored:
        again, once = (restored.get(it.id) for it in running)
        assert again.result(timeout=30) == "again"
        assert isinstance(once.exception(timeout=30), Error)
        assert once.show()["attempts"] == 1
        digest = hashlib.sha256(b"correct-horse").hexdigest()
        assert restored.get(secret.id).result(timeout=30) == digest


def test_without_its_key_a_backup_runs_all_but_what_is_sealed(
    serving: Serving, client: Client, tmp_path: Path
) -> None:
    """Who has the copy cannot open the secrets."""
    gate = tmp_path / "gate"
    waits = Submit(after=[client.submit("again", gate=str(gate))])
    secret = client.submit("login", password="correct-horse", options=waits)
    plain = client.submit("echo", text="plain", options=waits)
    told = back_up(serving, tmp_path / "copy", "--without-key", "--json")
    assert told.code == 0, told
    assert json.loads(told.out)["key"] is False
    assert not list((tmp_path / "copy").rglob("secret.key"))
    serving.kill()
    gate.touch()
    with served(serving, tmp_path / "copy") as restored:
        assert restored.get(plain.id).result(timeout=30) == "plain"
        failed = restored.get(secret.id).exception(timeout=30)
        assert failed is not None
        assert "key" in str(failed)


def test_a_backup_needs_no_server(serving: Serving, client: Client, tmp_path: Path) -> None:
    """After a kill, whose log was not written back, and after an orderly end."""
    sent = {client.submit("echo", text=str(number)).id for number in range(20)}
    serving.kill()
    told = back_up(serving, tmp_path / "killed")
    assert told.code == 0, told
    serving.start()
    os.kill(serving.pid, signal.SIGTERM)
    serving.ended()
    told = back_up(serving, tmp_path / "ended")
    assert told.code == 0, told
    for name in ("killed", "ended"):
        with served(serving, tmp_path / name) as restored:
            assert ids_of(restored) == sent


def test_others_cannot_read_a_backup(serving: Serving, client: Client, tmp_path: Path) -> None:
    """Arguments and results are private, whatever the umask is."""
    client.submit("large", letter="x", size=9_000).result(timeout=30)
    client.submit("echo", text="hello").result(timeout=30)
    target = tmp_path / "copy"
    assert back_up(serving, target).code == 0
    found = [target, *target.rglob("*")]
    assert {"results", "logs", "requests.db", "backup.json"} <= {path.name for path in found}
    for path in found:
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.lstat().st_mode) == wanted, path


def test_a_result_that_is_retried_later_stays_in_the_backup(
    serving: Serving, client: Client, tmp_path: Path
) -> None:
    """The copy has the end of the run before, and its log; the store has those of the next run."""
    gate = tmp_path / "gate"
    request = client.submit("opened", gate=str(gate), size=9_000)
    assert "it is closed" in str(request.exception(timeout=30))
    target = tmp_path / "copy"
    assert back_up(serving, target).code == 0
    gate.touch()
    client.retry(request.id)
    assert client.get(request.id).result(timeout=30) == b"x" * 9_000
    assert "run 2" in "".join(client.get(request.id).logs())
    assert check_backup(target).faults == ()
    with served(serving, target) as restored:
        kept = restored.get(request.id)
        assert "it is closed" in str(kept.exception(timeout=30))
        assert "run 2" not in "".join(kept.logs())


def test_a_result_that_is_pruned_later_stays_in_the_backup(
    serving: Serving, client: Client, tmp_path: Path
) -> None:
    """A copy may be a second name of the file, which nobody writes to."""
    request = client.submit("large", letter="x", size=9_000)
    request.result(timeout=30)
    assert back_up(serving, tmp_path / "copy").code == 0
    client.prune(ids=[request.id])
    assert not list((state_of(serving) / "results").iterdir())
    with served(serving, tmp_path / "copy") as restored:
        assert restored.get(request.id).result(timeout=30) == b"x" * 9_000


def test_a_backup_beside_a_prune_names_no_file_that_is_gone(
    serving: Serving, client: Client, tmp_path: Path
) -> None:
    """What retention removes while files are copied goes from the copy too."""
    over = threading.Event()

    def prune() -> None:
        with Client(f"unix://{serving.socket}", timeout=30.0) as other:
            while not over.is_set():
                other.prune(older_than=0.2)
                time.sleep(0.02)

    pruning = threading.Thread(target=prune)
    with Load(serving) as load:
        until(lambda: len(load.accepted()) > 300)
        pruning.start()
        try:
            for number in range(4):
                target = tmp_path / f"copy-{number}"
                told = back_up(serving, target, "--json")
                assert told.code == 0, told
                assert json.loads(told.out)["missing"] == []
                checked = forebay(serving.environment, "backup", "--check", target)
                assert checked.code == 0, checked
        finally:
            over.set()
            pruning.join()
    with served(serving, target) as restored:
        for row in restored.list(status="succeeded", name="large", limit=50):
            assert restored.get(row["id"]).result(timeout=30)


def test_two_backups_at_once_are_two_backups(
    serving: Serving, client: Client, tmp_path: Path
) -> None:
    """Into directories of their own; into one, the second is refused and nothing is mixed."""
    client.submit("echo", text="hello").result(timeout=30)
    told = {}

    def take(name: str, number: int) -> None:
        told[name, number] = back_up(serving, tmp_path / name)

    names = [("same", 0), ("same", 1), ("same", 2), ("other", 0)]
    threads = [threading.Thread(target=take, args=it) for it in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    codes = sorted(told["same", number].code for number in range(3))
    assert codes == [0, 2, 2], told
    assert told["other", 0].code == 0, told
    assert partial_folders(tmp_path) == []
    for name in ("same", "other"):
        checked = forebay(serving.environment, "backup", "--check", tmp_path / name)
        assert checked.code == 0, checked


def test_a_server_finds_its_requests_where_its_file_has_moved(
    serving: Serving, client: Client, tmp_path: Path
) -> None:
    """A folder is found by the path of the file: another path does not begin with nothing."""
    id_ = client.submit("echo", text="hello").id
    target = tmp_path / "copy"
    assert back_up(serving, target).code == 0
    moved = tmp_path / "moved"
    moved.mkdir()
    other = moved / "app.py"
    other.write_text(APP)
    told = forebay(serving.environment, "serve", other, "--state-dir", target)
    assert told.code == 2, told
    assert f"is a backup of {serving.file}" in told.err
    _, _, command = told.err.strip().partition("this application: mv ")
    old, new = command.split()
    os.rename(old, new)
    serving.file = other
    with served(serving, target) as restored:
        assert ids_of(restored) == {id_}
