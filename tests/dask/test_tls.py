"""Comms over TLS: who is let in, and what is said to who is not."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pytest
from distributed.comm import connect, listen
from distributed.comm.core import FatalCommClosedError
from distributed.comm.registry import backends
from distributed.protocol import to_serialize

from forebay.dask import Backend, Security, TLSBackend
from forebay.dask._security import PEM_ARGUMENT
from forebay.errors import ConfigError
from tests.dask.certificates import sign_like_theirs

ADDRESS = "forebay+tls://127.0.0.1"
TIMEOUT_S = 20.0


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Dask find the backends, installed or not."""
    monkeypatch.setitem(backends, "forebay", Backend())
    monkeypatch.setitem(backends, "forebay+tls", TLSBackend())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Certificates."""
    sign_like_theirs(tmp_path)
    return tmp_path


def security(folder: Path, name: str = "tls", **options: Any) -> Security:
    """One certificate for all roles."""
    roles = {
        f"tls_{role}_{kind}": str(folder / f"{name}-{kind}.pem")
        for role in ("client", "scheduler", "worker")
        for kind in ("cert", "key")
    }
    return Security(tls_ca_file=str(folder / "tls-ca-cert.pem"), **roles, **options)


async def echoed(ours: Any, theirs: Any) -> Any:
    """What a comm between the two knows, once an array has gone through it and back."""

    async def echo(comm: Any) -> None:
        await comm.write(await comm.read())
        await comm.close()

    async with (
        asyncio.timeout(TIMEOUT_S),
        listen(ADDRESS, echo, **theirs.get_listen_args("scheduler")) as listener,
    ):
        options = ours.get_connection_args("client")
        comm = await connect(listener.contact_address, **options)
        array = np.arange(300_000)
        await comm.write({"x": to_serialize(array)})
        assert np.array_equal((await comm.read())["x"], array)
        await comm.close()
        return comm.extra_info


def test_both_ends_show_a_certificate(folder: Path) -> None:
    """What a plugin asks a comm about its peer is there as over tls://."""
    known = asyncio.run(echoed(security(folder), security(folder)))
    assert known["peercert"]["subject"][-1] == (("commonName", "localhost"),)
    name, version, bits = known["cipher"]
    assert name.startswith("TLS_")
    assert version == "TLSv1.3"
    assert bits >= 128


@pytest.mark.leaks(reason="temporary credentials stay in memory for the life of the process")
def test_temporary_credentials_work() -> None:
    """A notebook has an encrypted cluster without a file."""
    temporary = Security.temporary()
    assert asyncio.run(echoed(temporary, temporary))["cipher"]


@pytest.mark.parametrize("bad", ["ours", "theirs"])
def test_a_certificate_of_somebody_else_is_refused_at_once(folder: Path, bad: str) -> None:
    """Either end is refused without thirty seconds of tries."""
    good, alone = security(folder), security(folder, "tls-self-signed")
    pair = (alone, good) if bad == "ours" else (good, alone)
    with pytest.raises(FatalCommClosedError, match="CA"):
        asyncio.run(echoed(*pair))


def test_plain_and_encrypted_do_not_mix(folder: Path) -> None:
    """Dialling a plain port with TLS, or the reverse, is an error that says so."""

    async def main() -> None:
        arguments = security(folder).get_connection_args("client")
        async with asyncio.timeout(TIMEOUT_S), listen("forebay://127.0.0.1", print) as listener:
            with pytest.raises(FatalCommClosedError, match="TLS"):
                await connect(
                    listener.contact_address.replace("forebay", "forebay+tls"),
                    **{**arguments, "require_encryption": False},
                )
        encrypted = security(folder).get_listen_args("scheduler")
        async with asyncio.timeout(TIMEOUT_S), listen(ADDRESS, print, **encrypted) as listener:
            plain = listener.contact_address.replace("forebay+tls", "forebay")
            with pytest.raises(OSError, match="not a Forebay peer"):
                await connect(plain, timeout=0.5)

    asyncio.run(main())


def test_a_security_of_dask_is_told_from_ours(folder: Path) -> None:
    """Whoever forgets to change the import is told what to change."""
    theirs = distributed.Security(
        tls_ca_file=str(folder / "tls-ca-cert.pem"),
        tls_scheduler_cert=str(folder / "tls-key-cert.pem"),
    )
    with pytest.raises(TypeError, match=r"give security=forebay\.dask\.Security"):
        listen(ADDRESS, print, **theirs.get_listen_args("scheduler"))


@pytest.mark.parametrize(
    "options",
    [{"tls_ciphers": "ECDHE-RSA-AES128-GCM-SHA256"}, {"tls_max_version": ssl.TLSVersion.TLSv1_2}],
)
def test_a_restriction_that_cannot_be_kept_is_refused(
    folder: Path, options: dict[str, Any]
) -> None:
    """A policy on ciphers is never dropped in silence."""
    arguments = security(folder, **options).get_listen_args("scheduler")
    with pytest.raises(ConfigError, match="ciphers of rustls"):
        listen(ADDRESS, print, **arguments)


def test_our_security_serves_tls_as_before(folder: Path) -> None:
    """A cluster can go back to tls:// without another change."""
    arguments = security(folder).get_listen_args("worker")
    assert isinstance(arguments.pop("ssl_context"), ssl.SSLContext)
    assert arguments["require_encryption"] is True
    assert arguments[PEM_ARGUMENT]["cert"] == str(folder / "tls-cert.pem")
