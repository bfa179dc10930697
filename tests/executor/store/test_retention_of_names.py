"""Requests of some names are kept for longer, or not as long, as the others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.executor.client.client import Client
from tests.executor.serving import Serving, until

APP = """
import forebay

app = forebay.App("ages")


@app.request(lane="short", retention="0s")
def brief() -> int:
    return 1


@app.request(lane="short", retention="30d")
def kept() -> int:
    return 2


@app.request(lane="short")
def usual() -> int:
    return 3
"""


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """A server that keeps what has no age of its own for two seconds, and looks often."""
    with Serving(tmp_path, APP, retention_age=2.0, retention_every_ms=50) as serving:
        yield serving


def test_each_name_is_kept_for_its_own_time(serving: Serving) -> None:
    """Also after a restart, before the application was imported again."""
    with Client(f"unix://{serving.socket}", timeout=20.0) as client:
        sent = {name: client.submit(name) for name in ("kept", "usual", "brief")}
        assert [it.result(timeout=20) for it in sent.values()] == [2, 3, 1]
        told = {name: sent[name].show()["retention_s"] for name in ("kept", "usual")}
        assert told == {"kept": 30 * 86_400.0, "usual": 2.0}
        manifest = {it["name"]: it["retention_s"] for it in client.ask("manifest")["requests"]}
        assert manifest == {"brief": 0.0, "kept": 30 * 86_400.0, "usual": None}
    with Client(f"unix://{serving.socket}", timeout=20.0) as client:
        # A result that was announced to a client stays until it has read it; that client has left.
        until(lambda: {row["name"] for row in client.list()} == {"kept"})
    serving.kill()
    time.sleep(2.1)
    serving.start()
    with Client(f"unix://{serving.socket}", timeout=20.0) as client:
        another = client.submit("usual")
        another.result(timeout=20)
        until(lambda: [row["name"] for row in client.list()] == ["kept"])


def test_a_changed_time_holds_for_what_has_ended(serving: Serving) -> None:
    """New code decides about old requests."""
    with Client(f"unix://{serving.socket}", timeout=20.0) as client:
        client.submit("kept").result(timeout=20)
        serving.file.write_text(APP.replace("30d", "1s"))
        client.ask("reload")
        until(lambda: client.list() == [])
