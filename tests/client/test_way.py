"""By which way a gateway is reached: TLS, proxies, addresses."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay_client import Client, errors
from tests.client.conftest import TOKEN
from tests.client.scripted_server import ScriptedServer, as_json, scripted
from tests.client.tunnel import Tunnel
from tests.transport.certificates import Authority


def test_a_proxy_connects_and_sees_nothing(
    server: ScriptedServer, authority: Authority, tunnel: Tunnel
) -> None:
    """TLS is between client and gateway; the proxy gets its own password alone."""
    server.answers = [as_json({"pid": 1})] * 2
    proxy = f"http://me:pass%20word@{tunnel.address}"
    with Client(server.url, TOKEN, ca_file=authority.ca, proxy=proxy, timeout=5.0) as client:
        assert client.info() == client.info() == {"pid": 1}
    (asked,) = tunnel.asked
    assert (asked.method, asked.target) == ("CONNECT", server.url.removeprefix("https://"))
    assert asked.headers["proxy-authorization"] == "Basic bWU6cGFzcyB3b3Jk"
    assert "authorization" not in asked.headers
    assert "proxy-authorization" not in server.received[0].headers


def test_proxies_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tunnel: Tunnel) -> None:
    """HTTPS_PROXY and NO_PROXY, and none for this machine."""
    monkeypatch.setenv("https_proxy", tunnel.address)
    monkeypatch.setenv("no_proxy", "near.example")
    client = Client("https://refused.example", TOKEN, timeout=5.0)
    with pytest.raises(errors.BrokenError, match="answered 403 and does not connect") as caught:
        client.info()
    assert caught.value.delivered == "no"
    client.close()
    for url in ("https://near.example", "https://localhost:1"):
        assert Client(url, TOKEN)._session._route.proxy is None
    assert Client("https://far.example", TOKEN)._session._route.proxy is not None
    assert Client("https://far.example", TOKEN, proxy="")._session._route.proxy is None


def test_a_proxy_of_plain_http_gets_the_whole_address() -> None:
    """As HTTP has it (RFC 9112, 3.2.2)."""
    with scripted() as proxy:
        proxy.answers = [as_json({"pid": 1})]
        with Client("http://far.example:81/base", proxy=proxy.url, timeout=5.0) as client:
            client.info()
        (sent,) = proxy.received
        assert sent.target == "http://far.example:81/base/v1/info"
        assert sent.headers["host"] == "far.example:81"


def test_the_certificate_is_verified(
    server: ScriptedServer, authority: Authority, tmp_path: Path
) -> None:
    """By the system's authorities, or the file that was given; nothing is sent before."""
    other = Authority(tmp_path / "other", "another")
    for ca_file in (None, other.ca):
        client = Client(server.url, TOKEN, ca_file=ca_file, timeout=5.0)
        with pytest.raises(errors.BrokenError, match=r"not accepted.*ca_file=") as caught:
            client.info()
        assert caught.value.delivered == "no"
        client.close()
    assert server.received == []


@pytest.mark.parametrize("case", ["other name", "expired"])
def test_a_certificate_of_another_or_of_the_past_is_refused(
    authority: Authority, case: str
) -> None:
    """Though the authority has signed it."""
    host, ended = ("other.example", 0) if case == "other name" else ("localhost", 3)
    signed = authority.sign(case.replace(" ", "_"), host, ended_days_ago=ended)
    with scripted(signed.cert, signed.key) as server:
        client = Client(server.url, TOKEN, ca_file=authority.ca, timeout=5.0)
        with pytest.raises(errors.BrokenError, match="not accepted"):
            client.info()
        client.close()


def test_a_server_without_tls_is_told_so(authority: Authority) -> None:
    """https:// to a port of http://."""
    with scripted() as server:
        url = server.url.replace("http://", "https://")
        client = Client(url, TOKEN, ca_file=authority.ca, timeout=2.0)
        with pytest.raises(errors.Error):
            client.info()
        client.close()
        assert [one.headers.get("authorization") for one in server.received] in ([], [None])


@pytest.mark.parametrize(
    ("url", "match"),
    [
        ("ftp://host", "use https://"),
        ("host:80", "use https://|names no host"),
        ("https://", "names no host"),
        ("https://me:secret@host", "the address alone"),
        ("https://host/?token=x", "the address alone"),
        ("https://host:99999", "is no URL"),
        ("https://ho st", "names no host"),
    ],
)
def test_addresses_that_are_none_are_refused(url: str, match: str) -> None:
    """Before anything happens, and without what may be a secret."""
    with pytest.raises(errors.ConfigError, match=match) as caught:
        Client(url)
    assert "secret" not in str(caught.value)


def test_files_and_proxies_that_are_none_are_refused(tmp_path: Path) -> None:
    """The message names them."""
    (tmp_path / "empty.pem").touch()
    for name in ("empty.pem", "none.pem"):
        with pytest.raises(errors.ConfigError, match=name):
            Client("https://host", ca_file=tmp_path / name)
    with pytest.raises(errors.ConfigError, match="is not https://"):
        Client("http://localhost", ca_file=tmp_path / "empty.pem")
    with pytest.raises(errors.ConfigError, match="its scheme is 'socks5'"):
        Client("https://host", proxy="socks5://localhost:1")
