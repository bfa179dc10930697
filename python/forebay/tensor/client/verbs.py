"""The choice of RDMA verbs for a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forebay import _core
from forebay.errors import ConfigError, Error

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.config import TensorConfig
    from forebay.memory import Arena

__all__ = ["check", "give_up", "lifeline", "offer"]


def check(config: TensorConfig, arena: Arena | None) -> None:
    """Refuse a client that is to use verbs and cannot.

    Raises:
        ConfigError: with what is missing.
    """
    if config.fabric != "verbs":
        return
    if arena is None:
        raise ConfigError(
            'fabric is "verbs" and the client has no arena; give one, which rows are written into'
        )
    found = _core.rdma_devices()
    if isinstance(found, str):
        raise ConfigError(f'fabric is "verbs" and cannot be used here: {found}')


def offer(config: TensorConfig, arena: Arena | None, link: _core.TensorLink) -> bytes | None:
    """The hello of a lifeline for verbs; None where the link goes without, and records why.

    Raises:
        ConfigError: there is no device, and verbs were demanded.
    """
    needed = config.fabric == "verbs"
    if config.fabric == "stream" or link.fabric == "shm":
        return None
    if arena is None:
        link.refuse_verbs("no verbs: the client has no arena")
        return None
    if not needed and not link.offers_verbs:
        link.refuse_verbs("no verbs: the server offers none")
        return None
    try:
        return link.offer_verbs(arena, config.slots)
    except Error as error:
        give_up(config, link, error)
        return None


def lifeline(config: TensorConfig, link: _core.TensorLink) -> Callable[[Any, Any], None]:
    """What makes a second connection the lifeline of the link's verbs, once its welcome came."""
    needed = config.fabric == "verbs"
    return lambda connection, welcome: link.use_verbs(connection._core, welcome, needed=needed)


def give_up(config: TensorConfig, link: _core.TensorLink, error: Error) -> None:
    """Go on without verbs, unless they were demanded: then raise the error."""
    if config.fabric == "verbs":
        link.close()
        raise error
    link.refuse_verbs(f"no verbs: {error}")
