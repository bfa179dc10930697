"""A pytest plugin for distributed's own tests: our comms in place of those over tornado."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from distributed import utils_test
from distributed.comm import tcp
from distributed.comm.registry import backends

from forebay.dask import Security, _mixed
from forebay.dask._security import PEM_ARGUMENT
from tests.dask.certificates import sign_like_theirs
from tests.dask.skips import SKIPS, listed

pytest_plugins = ["distributed.pytest_resourceleaks"]


class TLSConnector(_mixed.TLSConnector):
    """Ours, with the files of the context that a test gives."""

    async def connect(self, address: str, deserialize: bool = True, **arguments: Any) -> Any:
        return await super().connect(address, deserialize, **with_files(arguments))


class TLSListener(_mixed.TLSListener):
    """Likewise."""

    def __init__(self, address: str, handle_comm: Any, *options: Any, **arguments: Any) -> None:
        super().__init__(address, handle_comm, *options, **with_files(arguments))


class TLSBackend(_mixed.TLSBackend):
    _listener_class = TLSListener

    def get_connector(self) -> TLSConnector:
        return TLSConnector(self._kinds)


def with_files(connection_args: dict[str, Any]) -> dict[str, Any]:
    """Add what a `Security` of ours would: their tests pass contexts alone."""
    context = connection_args.get("ssl_context")
    return {PEM_ARGUMENT: FILES.get(id(context)), **connection_args}


FILES: dict[int, dict[str, str]] = {}
"""The files of each context that a test has made, by its id; none is freed."""

KEPT: list[ssl.SSLContext] = []


def remembering(make: Callable[..., ssl.SSLContext]) -> Callable[..., ssl.SSLContext]:
    """Have a function of their `utils_test` note which files a context was made of."""

    def made(
        certfile: str = "tls-cert.pem",
        keyfile: str = "tls-key.pem",
        ca_file: str = "tls-ca-cert.pem",
    ) -> ssl.SSLContext:
        context = make(certfile, keyfile, ca_file)
        KEPT.append(context)
        FILES[id(context)] = {
            "ca_file": utils_test.get_cert(ca_file),
            "cert": utils_test.get_cert(certfile),
            "key": utils_test.get_cert(keyfile),
        }
        return context

    return made


def pytest_configure(config: pytest.Config) -> None:
    """Put ours in place, for whoever asks the module or the registry."""
    # Dask's own TLS, which a first connection still uses, calls this of whatever is called TCP.
    _mixed.TCP._read_extra = tcp.TCP._read_extra  # type: ignore[attr-defined]
    replacements: list[type] = [_mixed.TCP, _mixed.TCPConnector, _mixed.TCPListener]
    replacements += [_mixed.TCPBackend, _mixed.TLS, TLSConnector, TLSListener, TLSBackend]
    for replacement in replacements:
        setattr(tcp, replacement.__name__, replacement)
    backends["tcp"], backends["tls"] = _mixed.TCPBackend(), TLSBackend()
    folder = tempfile.TemporaryDirectory()
    config.add_cleanup(folder.cleanup)
    sign_like_theirs(Path(folder.name))
    utils_test.certs_dir = folder.name
    utils_test.Security = Security
    for name in ("get_server_ssl_context", "get_client_ssl_context"):
        setattr(utils_test, name, remembering(getattr(utils_test, name)))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what cannot hold, and say why."""
    for item in items:
        row = listed(item.name)
        if row is not None:
            item.add_marker(pytest.mark.skip(reason=SKIPS[row]))
