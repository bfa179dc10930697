"""The certificate of a gateway, read again when its files have changed."""

from __future__ import annotations

import logging
import os
import ssl

from forebay.errors import ConfigError

__all__ = ["Certificate"]

_log = logging.getLogger(__name__)


class Certificate:
    """A certificate and its key. New connections use the newest, open ones keep what they have.

    Attributes:
        context: for connections.

    Raises:
        ConfigError: they cannot be used; the message says why.
    """

    def __init__(self, cert: str, key: str) -> None:
        self._files = (cert, key)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        self._stamps = self._look_at()
        self._load()

    def look(self) -> None:
        """Read the files again if they have changed."""
        stamps = self._look_at()
        if stamps != self._stamps:
            self._stamps = stamps
            self.reload()

    def reload(self) -> None:
        """Read the files again; where they cannot be used, what was read before stays in use."""
        try:
            self._check()
            self._load()
        except ConfigError as error:
            _log.error("the certificate of before stays in use: %s", error)

    def _check(self) -> None:
        """Try them apart: half of a change would spoil what is in use."""
        Certificate(*self._files)

    def _load(self) -> None:
        cert, key = self._files
        try:
            self.context.load_cert_chain(cert, key)
        except OSError as error:  # SSLError is one
            raise ConfigError(
                f"the certificate {cert} with the key {key} cannot be used: {error}"
            ) from None

    def _look_at(self) -> list[tuple[int, int] | None]:
        stamps: list[tuple[int, int] | None] = []
        for path in self._files:
            try:
                found = os.stat(path)
            except OSError:
                stamps.append(None)
            else:
                stamps.append((found.st_mtime_ns, found.st_ino))
        return stamps
