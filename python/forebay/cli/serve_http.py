"""Serving an application over HTTP: the listening socket, and the gateway behind it."""

from __future__ import annotations

import argparse
import math
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from forebay.errors import ConfigError

if TYPE_CHECKING:
    from forebay.cli.service.protocol import Passed
    from forebay.config import GatewayConfig
    from forebay.gateway._internal import GatewayProcess

Report = Callable[[str, dict[str, Any]], None]


class Gateway:
    """The gateway of a server that runs in this process. Leaving it ends the gateway.

    Args:
        options: of the command line.
        config: sizes.
        passed: the listening socket that somebody else opened, in the place of an address.

    Raises:
        ConfigError: a package is missing, the address cannot be used, or the certificate.

    Attributes:
        url: where clients of this machine reach it.
    """

    def __init__(
        self, options: argparse.Namespace, config: GatewayConfig, passed: Passed | None = None
    ) -> None:
        from forebay.gateway._internal import adopt, bind, check_installed

        check_installed()
        self._options = options
        self._config = config
        self._cert, self._key = _certificate(options)
        self._rates = dict(map(_rate, options.rate))
        how = {"encrypted": self._cert is not None, "plain": options.plain_http}
        self._bound = bind(options.http, **how) if passed is None else adopt(*passed, **how)
        self.url = _url(self._bound.host, self._bound.port, encrypted=self._cert is not None)
        self._process: GatewayProcess | None = None

    def start(
        self, facts: dict[str, Any], set_gateway: Callable[[int | None], None], report: Report
    ) -> None:
        """Start the gateway of a server that is ready, and report a link to it.

        Args:
            facts: of the server.
            set_gateway: gets the process of each gateway before it connects.
            report: gets events, from any thread.
        """
        from forebay.gateway._internal import (
            LOCAL,
            GatewayProcess,
            Settings,
            new_link,
            offer_local,
        )

        state = Path(facts["state_dir"])
        offer_local(state, [self.url])
        settings = Settings(
            server=f"unix://{facts['socket']}",
            state_dir=str(state),
            host=self._bound.host,
            port=self._bound.port,
            names=tuple(self._options.http_name),
            rates=self._rates,
            tls_cert=self._cert,
            tls_key=self._key,
            log_level=_level(self._options),
            log_format=self._options.log_format,
            max_connections=self._config.max_connections,
            max_connections_per_address=self._config.max_connections_per_address,
            max_body_bytes=self._config.max_body_bytes,
        )
        self._process = GatewayProcess(
            settings,
            self._bound.listener,
            started=set_gateway,
            warn=lambda text: report("warning", {"text": text}),
        )
        self._process.start()
        try:
            link = new_link(state, self.url, LOCAL)
        except ConfigError as error:  # such as of a full disk, which must not end a server
            link = None
            report("warning", {"text": f"there is no link that opens a browser session: {error}"})
        report("http", {"url": self.url, "link": link})

    def fileno(self) -> int:
        """The listening socket."""
        return self._bound.listener.fileno()

    def leave(self) -> None:
        """Another server answers from now on: end the gateway, without waiting for that."""
        if self._process is not None:
            threading.Thread(
                target=self._process.close, name="forebay-gateway-end", daemon=True
            ).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.close()
        self._bound.listener.close()


def _level(options: argparse.Namespace) -> str:
    """What the gateway logs: as much as the server does."""
    verbose = max(options.verbose, 1) if options.log_format == "json" else options.verbose
    return ("WARNING", "INFO", "DEBUG")[min(verbose, 2)]


def _certificate(options: argparse.Namespace) -> tuple[str | None, str | None]:
    """The files of the certificate and its key, which can be used; None: no TLS."""
    if options.tls_cert is None:
        if options.tls_key is not None:
            raise ConfigError("--tls-key needs --tls-cert, the certificate that it belongs to")
        return None, None
    from forebay.gateway._internal import Certificate

    cert = os.path.abspath(options.tls_cert)
    key = cert if options.tls_key is None else os.path.abspath(options.tls_key)
    Certificate(cert, key)
    return cert, key


def _rate(text: str) -> tuple[str, float]:
    """The name and the number of `NAME=100/s`."""
    name, _, rate = text.rpartition("=")
    try:
        count = float(rate.removesuffix("/s"))
    except ValueError:
        count = 0.0
    if not name or not 0 < count < math.inf:
        raise ConfigError(f"--rate {text}: write a token and a number, as in --rate ci=100/s")
    return name, count


def _url(host: str, port: int, *, encrypted: bool) -> str:
    from forebay.gateway._internal import Address

    return Address(host, port, encrypted).url
