"""A submission that is made twice, through the client and a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import forebay
from tests.executor.serving import Serving

APP = (Path(__file__).parents[1] / "server/server_app.py").read_text()


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """A server of the application."""
    with Serving(tmp_path, APP) as made:
        yield made


def test_a_submission_is_found_by_its_token_though_another_one_made_it(serving: Serving) -> None:
    """So it is where the first was sent to a server that has been killed."""
    with (
        forebay.Client(f"unix://{serving.socket}") as client,
        forebay.Client(f"unix://{serving.socket}") as other,
    ):
        key = forebay.Submit(idempotency="one")
        first = client.submit("sleep", seconds=1.0, options=key)
        id_ = first.id
        second = other.submit("sleep", seconds=1.0, options=key)
        assert second.id == id_
        assert first.status() in ("queued", "running"), "the id came before the end"
        assert second.result(timeout=20) == first.result(timeout=20)


def test_a_submission_that_has_ended_long_ago_has_its_id_too(serving: Serving) -> None:
    """The server reads its end from the disk, and does not know the token meanwhile."""
    with forebay.Client(f"unix://{serving.socket}") as client:
        for number in range(20):
            key = forebay.Submit(idempotency=str(number))
            first = client.submit("add", a=number, options=key)
            assert first.result(timeout=20) == number + 2
            assert client.submit("add", a=number, options=key).id == first.id


def test_a_key_of_another_request_is_refused_with_both_named(serving: Serving) -> None:
    """The second caller got the first one's result, of another type."""
    with forebay.Client(f"unix://{serving.socket}") as client:
        key = forebay.Submit(idempotency="today")
        first = client.submit("add", a=1, options=key)
        assert first.result(timeout=20) == 3
        with pytest.raises(forebay.ConfigError, match=f'"today".*{first.id}.*of add'):
            client.submit("sleep", seconds=0.0, options=key)
