"""Certificates of Dask's configuration, as TLS in Rust takes them: files."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from distributed import Security as DaskSecurity

from forebay.dask._owners import Credentials, behind_context, behind_handler
from forebay.dask._speech import ALPN
from forebay.errors import ConfigError
from forebay.transport import Tls

__all__ = ["PEM_ARGUMENT", "Security", "client_tls", "server_tls"]

PEM_ARGUMENT = "forebay_pem"
"""Keyword under which the backend finds certificates; other backends ignore it."""

KEPT_MAX = 32
"""Combinations of files kept in use, so that connections resume sessions."""

VERSIONS = {ssl.TLSVersion.TLSv1_2: "1.2", ssl.TLSVersion.TLSv1_3: "1.3"}


class Security(DaskSecurity):
    """`distributed.Security` that also gives its backend the paths of the certificates.

    Dask hands a backend a ready `ssl.SSLContext`, from which neither key nor certificate can be
    read back; TLS in Rust needs the files. Schedulers, workers, nannies, clients and clusters do
    without: the backend finds their security. A program that calls `connect`, `listen` or `rpc` of
    Dask itself needs this one.
    It takes the arguments of `distributed.Security`, reads the same configuration, and serves
    `tls://` as before. Give it wherever Dask takes a `security`; `Security.temporary()` works too.
    """

    # No __slots__: its base checks arguments against those that `self` has.

    def get_connection_args(self, role: str) -> dict[str, Any]:
        """What `connect` gets in the role of a client, a scheduler or a worker."""
        return self._with_pem(super().get_connection_args(role), role)

    def get_listen_args(self, role: str) -> dict[str, Any]:
        """What `listen` gets in the role of a scheduler or a worker."""
        return self._with_pem(super().get_listen_args(role), role)

    def _with_pem(self, arguments: dict[str, Any], role: str) -> dict[str, Any]:
        return {**arguments, PEM_ARGUMENT: _pem_of((self, role))}


def client_tls(connection_args: dict[str, Any]) -> Tls:
    """What a connecting side shows and believes.

    As in Dask, a certificate of the cluster's CA is enough, whatever host it was made for: workers
    come and go under addresses that are not known beforehand.

    Raises:
        TypeError: no certificates came along.
        ConfigError: they cannot be used, or TLS is to be restricted as it cannot be here.
    """
    pem = connection_args.get(PEM_ARGUMENT)
    if pem is None:
        pem = _pem_of(behind_context(connection_args.get("ssl_context")))
    return _client(*_checked(pem), connection_args.get("server_hostname"))


def server_tls(connection_args: dict[str, Any], handle_comm: Callable[..., Any]) -> Tls:
    """What a listening side shows; it accepts peers with a certificate of its CA.

    Raises:
        As `client_tls`.
    """
    pem = connection_args.get(PEM_ARGUMENT)
    if pem is None:
        pem = _pem_of(behind_handler(handle_comm))
    return _server(*_checked(pem))


def _pem_of(credentials: Credentials | None) -> dict[str, Any]:
    if credentials is None:
        return {}
    security, role = credentials
    oldest: ssl.TLSVersion = getattr(security, "tls_min_version")  # noqa: B009 - of its __slots__
    newest: ssl.TLSVersion | None = getattr(security, "tls_max_version")  # noqa: B009 - likewise
    return {
        **security.get_tls_config_for_role(role),
        "min_version": VERSIONS[oldest],
        "max_version": newest and VERSIONS[newest],
    }


def _checked(pem: dict[str, Any]) -> tuple[str, str, str, str]:
    """CA, certificate, key and the oldest version."""
    ca, cert = pem.get("ca_file"), pem.get("cert")
    if not ca or not cert:
        raise TypeError(
            "forebay+tls:// needs the files of certificates: give a security with tls_ca_file, and"
            " certificate and key of the role. Whoever calls connect or listen of distributed"
            " itself gives those of a forebay.dask.Security, since a distributed.Security passes no"
            " files on"
        )
    if pem.get("ciphers") or pem.get("max_version") == "1.2":
        raise ConfigError(
            "forebay+tls:// speaks TLS 1.3, or 1.2 to peers that are not ours, with the ciphers of"
            " rustls: leave distributed.comm.tls.ciphers and max-version empty, or use tls://"
        )
    return ca, cert, pem.get("key") or cert, pem.get("min_version") or "1.2"


@lru_cache(KEPT_MAX)
def _client(ca: str, cert: str, key: str, min_version: str, name: str | None) -> Tls:
    return Tls.client(
        ca=_file(ca),
        cert=_file(cert),
        key=_file(key),
        server_name=name,
        check_hostname=False,
        alpn=(ALPN,),
        min_version=min_version,  # type: ignore[arg-type]  # one of VERSIONS
    )


@lru_cache(KEPT_MAX)
def _server(ca: str, cert: str, key: str, min_version: str) -> Tls:
    return Tls.server(
        cert=_file(cert),
        key=_file(key),
        client_ca=_file(ca),
        alpn=(ALPN,),
        min_version=min_version,  # type: ignore[arg-type]  # one of VERSIONS
    )


def _file(pem: str) -> str:
    """The path of a PEM file; temporary credentials, which are texts, get one in memory."""
    return _in_memory(pem) if "\n" in pem else pem


@lru_cache(KEPT_MAX)
def _in_memory(pem: str) -> str:
    """A file that has no name; it stays open for the life of the process."""
    descriptor = os.memfd_create("forebay-pem", os.MFD_CLOEXEC)
    os.write(descriptor, pem.encode())
    return f"/proc/self/fd/{descriptor}"
