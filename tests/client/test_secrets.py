"""A token goes to the gateway and nowhere else."""

from __future__ import annotations

import logging
import pickle
import traceback
from pathlib import Path
from typing import Any

import pytest

from forebay_client import AsyncClient, Client, errors
from tests.client.conftest import TOKEN
from tests.client.scripted_server import CLOSE, ScriptedServer, answer, problem, scripted
from tests.transport.certificates import Authority


def everything(error: BaseException) -> str:
    """An error with the variables of every frame of this client, as crash reporters show them."""
    told = []
    pending: list[BaseException | None] = [error]
    while pending:
        one = pending.pop()
        if one is None:
            continue
        frames = traceback.TracebackException.from_exception(one, capture_locals=True)
        told += [repr(one), *frames.format()]
        pending += [one.__cause__, one.__context__]
    return "\n".join(told).split("forebay_client/", 1)[1]  # the test's own frames come first


@pytest.mark.parametrize(
    "script",
    [
        [CLOSE],
        [[b"HTTP/1.1 200", CLOSE]],
        [b"no http\r\n\r\n"],
        [problem(401, "unauthenticated")],
        [answer(200, b"x", "text/plain")],
    ],
    ids=["closed", "cut", "nonsense", "refused", "no json"],
)
def test_no_traceback_shows_the_token(
    server: ScriptedServer,
    authority: Authority,
    script: list[Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """However it fails, and whatever is logged."""
    caplog.set_level(logging.DEBUG)
    server.answers = script
    client = Client(server.url, TOKEN, ca_file=authority.ca, timeout=5.0)
    with pytest.raises(errors.Error) as caught:
        client.info()
    assert server.received[0].headers["authorization"] == f"Bearer {TOKEN}"
    assert TOKEN not in everything(caught.value)
    assert TOKEN not in caplog.text
    client.close()


def test_no_repr_shows_the_token(authority: Authority) -> None:
    """Of the client, nor of anything in it."""
    client = Client("https://localhost:9", TOKEN, ca_file=authority.ca)
    session = client._session
    for one in (client, session, session._authorization, session._route, vars(session)):
        assert TOKEN not in repr(one)
    with pytest.raises(TypeError, match="is not pickled"):
        pickle.dumps(session._authorization)
    client.close()


@pytest.mark.parametrize("make", [Client, AsyncClient])
def test_a_token_does_not_go_to_another_machine_in_plain_text(make: Any) -> None:
    """Unless that is allowed by name."""
    for url in ("http://queue.example:8080", "http://10.0.0.1", "http://127.0.0.1.example"):
        with pytest.raises(errors.ConfigError, match="in plain text; use https://") as caught:
            make(url, TOKEN)
        assert TOKEN not in everything(caught.value)
        make(url, TOKEN, plain_http=True)
        make(url)
    for url in ("http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1"):
        make(url, TOKEN)


def test_a_token_does_not_go_to_a_proxy_in_plain_text() -> None:
    """One of another machine reads what goes to a loopback address, which is its own then."""
    url, proxy = "http://127.0.0.1:1", "http://proxy.example:3128"
    with pytest.raises(errors.ConfigError, match=r"by the proxy proxy\.example:3128 in plain text"):
        Client(url, TOKEN, proxy=proxy)
    Client(url, TOKEN, proxy=proxy, plain_http=True)
    Client(url, TOKEN, proxy="http://localhost:3128")
    Client(url, proxy=proxy)


def test_a_token_comes_from_a_file(tmp_path: Path) -> None:
    """Its first line; and nothing that is no token is sent to anyone."""
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\nhttps://localhost:1\n")
    with scripted() as server, Client(server.url, token_file=path, timeout=5.0) as client:
        server.answers = [problem(403, "forbidden")]
        with pytest.raises(errors.ConfigError):
            client.info()
        assert server.received[0].headers["authorization"] == f"Bearer {TOKEN}"
    path.write_text("root:x:0:0:hunter2\n")
    with pytest.raises(errors.ConfigError, match="is no token") as caught:
        Client("http://localhost:1", token_file=path)
    assert "hunter2" not in everything(caught.value)
    with pytest.raises(errors.ConfigError, match="cannot be read"):
        Client("http://localhost:1", token_file=tmp_path / "none")
    with pytest.raises(errors.ConfigError, match="both given"):
        Client("http://localhost:1", TOKEN, token_file=path)


def test_a_redirect_is_not_followed(server: ScriptedServer, authority: Authority) -> None:
    """It would carry the token to wherever it points."""
    with scripted() as other:
        server.answers = [answer(307, b"", Location=f"{other.url}/v1/info")]
        client = Client(server.url, TOKEN, ca_file=authority.ca, timeout=5.0)
        with client, pytest.raises(errors.ProtocolError):
            client.info()
        assert other.received == []
