"""`make_vec`: a vector environment on warm services, with AsyncVectorEnv's constructor."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gymnasium.vector import AutoresetMode

from forebay.errors import ConfigError
from forebay.gym._recipe import EnvFunction, recipes_of
from forebay.gym._service_group import ServiceGroup
from forebay.gym._vector import PooledVectorEnv
from forebay.pool import ServicePool

if TYPE_CHECKING:
    from forebay.gym._spaces import ObservationMode

ENVIRONMENTS_MAX = 256
"""Services of the pool that vector environments share unless they are given one."""

REMAKE_TIMEOUT = 60.0
"""Seconds that an environment's function may take between two uses; simulators load files."""

CONTEXTS = (None, "fork", "spawn", "forkserver")

_pool: ServicePool | None = None
_lock = threading.Lock()


def make_vec(
    env_fns: Sequence[EnvFunction],
    shared_memory: bool = True,
    copy: bool = True,
    context: str | None = None,
    daemon: bool = True,
    worker: Callable[..., None] | None = None,
    observation_mode: ObservationMode = "same",
    autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    max_concurrency: int | None = None,
    *,
    pool: ServicePool | None = None,
    restart: bool = False,
    acquire_timeout: float = 120.0,
    call_timeout: float | None = None,
) -> PooledVectorEnv:
    """Make a vector environment whose environments run in warm processes.

    The functions travel by value, with cloudpickle, to processes of the same user.
    Equal ones share warm services: `close` gives these back, each makes its environment again in
    the background, and the next `make_vec` borrows them. Global variables of modules stay there.

    Args:
        env_fns: functions without arguments that return an environment, one each.
        shared_memory: accepted; observations of a fixed shape always lie in shared memory, others
            travel with the answers.
        copy: return new observation arrays each time; False: the same ones, overwritten.
        context: accepted ("fork", "spawn", "forkserver"); all processes come from a template.
        daemon: accepted; the processes always end with this program, and may have children.
        worker: None; a custom worker cannot run here.
        observation_mode: "same", "different", or the batched and the single observation space.
        autoreset_mode: when an environment whose episode has ended is reset.
        max_concurrency: how many environments are called at once, or None for all.
        pool: the lender; by default `environment_pool()`, with at most 256 services.
        restart: replace an environment that was lost or raised in a step, and truncate its episode,
            rather than raise.
        acquire_timeout: seconds to wait for the services, their start included.
        call_timeout: seconds for each reset, step or call, after which an environment is ended.

    Raises:
        ConfigError: an argument makes no sense here, or there are more environments than the pool
            may have services.
        forebay.gym.SpacesError: the environments have different spaces; also a RuntimeError.
        forebay.RemoteError: a function raised, `.environment` says which.
        forebay.DeadlineError, forebay.BrokenError: a service could not be borrowed.

    Interrupting (Ctrl-C) gives back what was borrowed.
    Cost: some 30 us for each environment whose service is warm; else that of its start, which the
    environments wait for together.
    """
    _check(env_fns, context, worker, max_concurrency)
    group = ServiceGroup(
        _lender(pool, len(env_fns)),
        recipes_of(env_fns),
        acquire_timeout=acquire_timeout,
        call_timeout=call_timeout,
        concurrent=max_concurrency or len(env_fns),
    )
    try:
        return PooledVectorEnv(
            group,
            copy=copy,
            observation_mode=observation_mode,
            autoreset_mode=AutoresetMode(autoreset_mode),
            restart=restart,
        )
    except BaseException:
        group.close()
        raise


def _lender(pool: ServicePool | None, count: int) -> ServicePool:
    lender = pool or environment_pool()
    limit = lender.config.max_size
    if count > limit:
        raise ConfigError(
            f"{count} environments need as many services, and pool {lender.name!r} may have"
            f" max_size={limit}; give pool=forebay.ServicePool(max_size={count})"
        )
    return lender


def environment_pool() -> ServicePool:
    """The pool that vector environments of this process share, made on first use."""
    global _pool
    with _lock:
        if _pool is None:
            _pool = ServicePool(
                max_size=ENVIRONMENTS_MAX, reset_timeout=REMAKE_TIMEOUT, name="environments"
            )
        return _pool


def _check(
    env_fns: Sequence[EnvFunction],
    context: str | None,
    worker: Any,
    max_concurrency: int | None,
) -> None:
    if not env_fns:
        raise ConfigError("env_fns is empty; give at least one environment function")
    if context not in CONTEXTS:
        raise ConfigError(f"context is {context!r}; give None, 'fork', 'spawn' or 'forkserver'")
    if worker is not None:
        raise ConfigError(
            "a custom worker is the loop of a multiprocessing process, which does not exist here;"
            " put what it does into a wrapper that the environment function applies"
        )
    if max_concurrency is not None and max_concurrency < 1:
        raise ConfigError(f"max_concurrency is {max_concurrency}; give 1 or more, or None")


def _forget() -> None:
    """In a forked child: the pool is the parent's."""
    global _pool, _lock
    _pool = None
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget)
