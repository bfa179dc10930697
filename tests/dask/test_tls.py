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
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.protocol import to_serialize

from forebay.dask import Backend, Security, TLSBackend
from forebay.dask._security import PEM_ARGUMENT
from forebay.errors import ConfigError
from tests.dask.certificates import files, sign_for, sign_like_theirs

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
    return Security(**files(folder, name), **options)


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


def test_arguments_of_a_security_of_dask_alone_are_refused_with_what_to_give(
    folder: Path,
) -> None:
    """A program that calls `listen` and `connect` itself learns whose security it needs."""
    theirs = distributed.Security(**files(folder))

    async def main() -> None:
        with pytest.raises(TypeError, match=r"those of a forebay\.dask\.Security"):
            listen(ADDRESS, print, **theirs.get_listen_args("scheduler"))
        with pytest.raises(TypeError, match=r"those of a forebay\.dask\.Security"):
            await connect(f"{ADDRESS}:1", **theirs.get_connection_args("client"))

    asyncio.run(main())


def test_tls_without_certificates_does_not_start() -> None:
    """A cluster that was to be encrypted never starts otherwise."""

    class Server:
        security = distributed.Security()

        def handle(self, comm: Any) -> None: ...

    arguments = Server.security.get_listen_args("scheduler")
    with pytest.raises(TypeError, match="needs the files of certificates"):
        listen(ADDRESS, Server().handle, **arguments)


class Noting(SchedulerPlugin):
    """Notes whose certificates a scheduler's peers show."""

    def __init__(self) -> None:
        self.shown: dict[str, str] = {}

    def update_graph(self, scheduler: Any, **_: Any) -> None:
        for role, comms in (("worker", scheduler.stream_comms), ("client", scheduler.client_comms)):
            [stream] = comms.values()
            self.shown[role] = subject_of(stream.comm)


def subject_of(comm: Any) -> str:
    return comm.extra_info["peercert"]["subject"][-1][0][1]


def test_with_a_security_of_dask_each_role_shows_its_own_certificate(folder: Path) -> None:
    """A worker is known by the worker's certificate, and a client by the client's."""
    roles = ("scheduler", "worker", "client")
    sign_for(folder, *roles)
    paths = {
        f"tls_{role}_{kind}": str(folder / f"{role}-{kind}.pem")
        for role in roles
        for kind in ("cert", "key")
    }
    security = distributed.Security(tls_ca_file=str(folder / "tls-ca-cert.pem"), **paths)
    noting = Noting()
    options = {
        "security": security,
        "protocol": "forebay+tls",
        "host": "127.0.0.1",
        "dashboard_address": ":0",
    }

    async def main() -> None:
        async with (
            asyncio.timeout(TIMEOUT_S),
            distributed.Scheduler(plugins=[noting], **options) as scheduler,
            distributed.Worker(scheduler.address, nthreads=1, **options),
            distributed.Client(scheduler.address, security=security, asynchronous=True) as client,
        ):
            assert await client.submit(sum, [1, 2]) == 3
            worker, *_ = scheduler.workers
            assert await client.run(subject_of_scheduler, workers=[worker]) == {worker: "scheduler"}

    asyncio.run(main())
    assert noting.shown == {"worker": "worker", "client": "client"}


def subject_of_scheduler(dask_worker: Any) -> str:
    """Whose certificate a worker was shown."""
    return subject_of(dask_worker.batched_stream.comm)


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
