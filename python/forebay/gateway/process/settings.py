"""What the process of a gateway is told when it begins."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All of it; it travels as JSON in the arguments of the process, so it has no secrets.

    Attributes:
        server: the Unix socket of the server.
        state_dir: of the server, where the tokens are.
        host: that the listening socket is bound to.
        port: of it.
        names: by which clients may call the gateway, beside its address.
        tls_cert: PEM file of the certificate and those that lead to its CA; None: no TLS.
        tls_key: PEM file of its key; None: `tls_cert` has it too.
        rates: submissions a second, by the name of the token.
        log_level: the name of a level of `logging`.
        log_format: the setting of that name.
        max_connections: as of `GatewayConfig`, and so are the others.
    """

    server: str
    state_dir: str
    host: str
    port: int
    names: tuple[str, ...] = ()
    tls_cert: str | None = None
    tls_key: str | None = None
    rates: dict[str, float] = field(default_factory=dict)
    log_level: str = "WARNING"
    log_format: str | None = None
    max_connections: int
    max_connections_per_address: int
    max_body_bytes: int
