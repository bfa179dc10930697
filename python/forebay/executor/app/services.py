"""The services that an application wants kept warm."""

from __future__ import annotations

import inspect
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from forebay.errors import ConfigError

if TYPE_CHECKING:
    from forebay.pool import Command, Service, Spec

__all__ = ["AppService", "services_of"]

SHARDS_MAX = 4096


class AppService(NamedTuple):
    """A service that an application wants kept warm by its server.

    Attributes:
        what: a class, a spec, or a Command.
        name: its name in the pool.
        min_idle: idle ones that are kept ready.
        max_size: services at once; 0: as many as the pool has room for.
        alias: its name in the application; "" if that gives none.
    """

    what: type[Service] | Spec[Any] | Command
    name: str
    min_idle: int
    max_size: int
    alias: str = ""


def services_of(
    app: str,
    what: Any,
    alias: str,
    min_idle: int,
    max_size: int,
    shards: int | None,
) -> list[AppService]:
    """The services that one declaration of an application means: one, or one for each shard.

    Raises:
        ConfigError: `what` is no service, has no shards, or cannot be kept ready for others.
    """
    from forebay.pool import Command, Service, Spec

    if isinstance(what, Spec):
        name = what.service.__name__
    elif isinstance(what, Command):
        name = os.path.basename(what.arguments[0])
        if min_idle and what.keeps_session:
            raise ConfigError(
                f"app {app!r}: {name} is kept by the worker that starts it, since its client speaks"
                f" on its stdin and stdout; min_idle={min_idle} would start it in the server, for "
                "no request: give min_idle=0"
            )
    elif isinstance(what, type) and issubclass(what, Service):
        name = what.__name__
    else:
        raise ConfigError(
            f"app {app!r}: {what!r} is no service: give a subclass of forebay.Service, "
            "its spec(), or a Command"
        )
    if shards is None:
        return [AppService(what, name, min_idle, max_size, alias)]
    return [AppService(spec, name, 1, 1, alias) for spec in _shards_of(app, what, shards)]


def _shards_of(app: str, what: Any, shards: int) -> list[Spec[Any]]:
    from forebay.pool import Command, Spec

    if not 1 <= shards <= SHARDS_MAX:
        raise ConfigError(f"app {app!r}: shards is {shards}; give 1 to {SHARDS_MAX}")
    if isinstance(what, Command):
        raise ConfigError(f"app {app!r}: {what!r} is a program, which has no shards")
    spec = what if isinstance(what, Spec) else what.spec()
    parameters = inspect.signature(spec.service).parameters
    if not {"shard", "shards"} <= parameters.keys():
        raise ConfigError(
            f"app {app!r}: {spec.service.__name__} takes no shard= and shards=, so it has no shards"
        )
    return [
        Spec(spec.service, spec.args, {**spec.kwargs, "shard": shard, "shards": shards})
        for shard in range(shards)
    ]
