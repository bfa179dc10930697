"""The file of tokens, and what the gateway finds in it."""

from __future__ import annotations

import concurrent.futures
import json
import logging
import os
import stat
from pathlib import Path

import pytest

from forebay.errors import ConfigError
from forebay.gateway.local_token import offer_local
from forebay.gateway.token import LOCAL, Role, digest_of
from forebay.gateway.token_file import add_token, read_tokens, remove_token, stamp_of
from forebay.gateway.tokens import Tokens
from tests.other_user import NOBODY, needs_root


class Clock:
    """A clock that a test sets."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "tokens.json"


def test_a_token_is_found_by_its_text_alone(path: Path) -> None:
    """The file has a digest: who reads a copy of it can call nothing."""
    _, text = add_token(path, "ann", Role.SUBMIT, quota=7)
    assert text.startswith("fb_")
    assert len(text) == 46
    assert text not in path.read_text()
    assert digest_of(text.encode()).hex() in path.read_text()
    tokens = Tokens(path)
    found = tokens.find(text.encode())
    assert found is not None
    assert (found.name, found.role, found.quota) == ("ann", Role.SUBMIT, 7)
    for wrong in (text[:-1], text + "x", "", digest_of(text.encode()).hex(), "fb_" + "x" * 1000):
        assert tokens.find(wrong.encode()) is None


def test_a_role_includes_those_below_it() -> None:
    """The matrix of routes compares them."""
    assert Role.READ < Role.SUBMIT < Role.ADMIN
    with pytest.raises(ConfigError, match="read, submit or admin"):
        Role.named("root")


def test_the_file_is_this_users_alone(path: Path) -> None:
    """Whatever the umask is."""
    before = os.umask(0)
    try:
        add_token(path, "ann", Role.READ)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_file_that_others_can_open_is_refused(path: Path, mode: int) -> None:
    """They could have read it, or written themselves in."""
    add_token(path, "ann", Role.READ)
    path.chmod(mode)
    with pytest.raises(ConfigError, match="open to others"):
        Tokens(path)
    with pytest.raises(ConfigError, match="open to others"):
        add_token(path, "bob", Role.READ)


@needs_root
def test_the_file_of_another_user_is_refused(path: Path) -> None:
    """Root reads it, and would let in whoever wrote it."""
    add_token(path, "ann", Role.READ)
    os.chown(path, NOBODY, NOBODY)
    with pytest.raises(ConfigError, match=f"belongs to user {NOBODY}"):
        Tokens(path)


def test_a_link_is_not_followed(path: Path) -> None:
    """It leads where its maker wants."""
    add_token(path, "ann", Role.READ)
    moved = path.rename(path.with_name("elsewhere"))
    path.symlink_to(moved)
    with pytest.raises(ConfigError, match="cannot be read"):
        Tokens(path)


def test_an_expired_token_is_refused(path: Path) -> None:
    """From the second of its expiry on, without anything being written."""
    token, text = add_token(path, "ann", Role.READ, expires_s=3600)
    clock = Clock(token.made)
    tokens = Tokens(path, clock=clock)
    found = tokens.find(text.encode())
    assert found is not None
    assert found.expires is not None
    clock.now = found.expires - 0.001
    assert tokens.is_in_force(found)
    clock.now = found.expires
    assert tokens.find(text.encode()) is None
    assert tokens.named("ann") is None
    assert not tokens.is_in_force(found)


def test_a_change_is_seen_within_a_second(path: Path) -> None:
    """And looked for once a second at most: every request asks."""
    _, first = add_token(path, "ann", Role.READ)
    timer = Clock(100.0)
    tokens = Tokens(path, timer=timer)
    found = tokens.find(first.encode())
    assert found is not None
    assert remove_token(path, "ann")
    timer.now += 0.99
    assert tokens.find(first.encode()) == found
    assert tokens.is_in_force(found)
    timer.now += 0.01
    assert tokens.find(first.encode()) is None
    assert not tokens.is_in_force(found)


def test_a_token_works_as_soon_as_it_is_made(path: Path) -> None:
    """Who makes one and uses it was refused for up to a second."""
    _, first = add_token(path, "ann", Role.READ)
    tokens = Tokens(path, timer=Clock(100.0))
    assert tokens.find(first.encode()) is not None
    _, second = add_token(path, "bob", Role.ADMIN)
    found = tokens.find(second.encode())
    assert found is not None
    assert found.name == "bob"
    assert tokens.find(b"fb_unknown") is None


def test_reload_reads_at_once(path: Path) -> None:
    """As SIGHUP asks for."""
    tokens = Tokens(path)
    _, text = add_token(path, "ann", Role.READ)
    tokens.reload()
    assert tokens.find(text.encode()) is not None


def test_a_name_made_anew_is_another_token(path: Path) -> None:
    """Who held the old one is out, though the name is there again."""
    _, old = add_token(path, "ann", Role.READ)
    timer = Clock(100.0)
    tokens = Tokens(path, timer=timer)
    found = tokens.find(old.encode())
    assert found is not None
    remove_token(path, "ann")
    add_token(path, "ann", Role.READ)
    timer.now += 1
    assert not tokens.is_in_force(found)


DAMAGED = {
    "empty": b"",
    "cut": b'{"schema": 1, "tokens": [{"name": "a',
    "no json": b"\xff\xfe\x00",
    "a list": b"[]",
    "later": b'{"schema": 2, "tokens": []}',
    "no tokens": b'{"schema": 1}',
    "strange role": b'{"schema": 1, "tokens": [{"name": "a", "role": "root", "sha256": "'
    + b"00" * 32
    + b'", "made_at": "2026-01-01T00:00:00Z", "expires_at": null}]}',
    "short digest": b'{"schema": 1, "tokens": [{"name": "a", "role": "read", "sha256": "00",'
    b' "made_at": "2026-01-01T00:00:00Z", "expires_at": null}]}',
}


@pytest.mark.parametrize("damage", [*DAMAGED, "removed", "open"])
def test_a_damaged_file_keeps_the_tokens_of_before(
    path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A slip of an editor locks nobody out, lets nobody in, and is told once."""
    _, text = add_token(path, "ann", Role.READ)
    timer = Clock(100.0)
    tokens = Tokens(path, timer=timer)
    kept = path.read_bytes()
    if damage == "removed":
        path.unlink()
    elif damage == "open":
        path.chmod(0o644)
    else:
        path.write_bytes(DAMAGED[damage])
    with caplog.at_level(logging.ERROR, "forebay"):
        for _ in range(3):
            timer.now += 1
            assert tokens.find(text.encode()) is not None
            tokens.reload()
    assert len(caplog.records) == 1
    assert "stay in force" in caplog.text
    path.write_bytes(kept)
    path.chmod(0o600)
    remove_token(path, "ann")
    timer.now += 1
    assert tokens.find(text.encode()) is None


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_at_the_start_is_an_error(path: Path, damage: str) -> None:
    """There is nothing of before; and a later `add` does not write over what may be mended."""
    add_token(path, "ann", Role.READ)
    path.write_bytes(DAMAGED[damage])
    with pytest.raises(ConfigError):
        Tokens(path)
    with pytest.raises(ConfigError):
        add_token(path, "bob", Role.READ)
    assert path.read_bytes() == DAMAGED[damage]


def test_tokens_added_at_once_are_all_kept(path: Path) -> None:
    """Each reads, adds and replaces under the lock."""
    names = [f"user{number}" for number in range(40)]
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: add_token(path, name, Role.READ), names))
    assert sorted(one.name for one in read_tokens(path)) == sorted(names)
    assert {one.name for one in path.parent.iterdir()} == {"tokens.json", "tokens.json.lock"}


@pytest.mark.parametrize("name", ["", "-x", "a b", "a\n", "a:b", "x" * 64, "ä", "cron", "../x"])
def test_a_strange_name_is_refused(path: Path, name: str) -> None:
    """It stands in logs, labels and listings, and is the submitter of requests."""
    with pytest.raises(ConfigError, match="name"):
        add_token(path, name, Role.READ)


def test_what_is_refused_leaves_no_file(path: Path) -> None:
    """Nor a directory."""
    for wrong in ({"quota": 0}, {"expires_s": -1.0}):
        with pytest.raises(ConfigError):
            add_token(path, "ann", Role.READ, **wrong)  # type: ignore[arg-type]
    assert not remove_token(path, "ann")
    assert not path.parent.exists()


def test_a_name_is_given_once(path: Path) -> None:
    """Two holders of one name could not be told apart."""
    add_token(path, "ann", Role.READ)
    with pytest.raises(ConfigError, match="forebay token rm ann"):
        add_token(path, "ann", Role.ADMIN)


def test_the_local_token_is_not_written_where_it_is_the_same(tmp_path: Path) -> None:
    """A server could not be started again on a full disk, where its store can be opened."""
    offer_local(tmp_path, ["http://127.0.0.1:8000"])
    files = [tmp_path / name for name in ("local.token", "tokens.json")]
    before = [stamp_of(path) for path in files]
    offer_local(tmp_path, ["http://127.0.0.1:8000"])
    assert [stamp_of(path) for path in files] == before


def test_the_local_token_is_made_once_and_finds_its_address(tmp_path: Path) -> None:
    """A server that starts again keeps it; one that was removed, or opened to others, is new."""
    state = tmp_path / "state"
    path = state / "local.token"
    text = offer_local(state, ["http://127.0.0.1:8000/"])
    assert path.read_text() == f"{text}\nhttp://127.0.0.1:8000\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = Tokens(state / "tokens.json").find(text.encode())
    assert found is not None
    assert (found.name, found.role) == (LOCAL, Role.ADMIN)
    assert offer_local(state, ["http://127.0.0.1:9000"]) == text
    assert path.read_text() == f"{text}\nhttp://127.0.0.1:9000\n"
    path.chmod(0o644)
    second = offer_local(state, [])
    remove_token(state / "tokens.json", LOCAL)
    third = offer_local(state, [])
    assert len({text, second, third}) == 3
    assert json.loads((state / "tokens.json").read_text())["tokens"][0]["name"] == LOCAL
    assert Tokens(state / "tokens.json").find(text.encode()) is None
