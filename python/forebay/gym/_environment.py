"""The base of an environment that borrows its backend from a pool.

Life of the backend, after CompilerGym's environments: it is borrowed at the first `reset`, kept
from one episode to the next, and given back by `close`.
A backend that dies, hangs or breaks the protocol ends the episode, not the program: `step`
answers `truncated=True` with the reason in `info`, and the next `reset` borrows another one.
It is a truncation since nothing in the task ended; an agent must not learn from it that it did.
"""

from __future__ import annotations

import contextlib
import copy
import logging
from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Generic, Self, TypeVar

import gymnasium

from forebay.errors import BrokenError, ConfigError, DeadlineError, Error, StaleError
from forebay.gym._loss import loss_info

__all__ = ["AcquireFunction", "ServiceEnv"]

logger = logging.getLogger(__name__)

Observation = TypeVar("Observation")
Action = TypeVar("Action")
AcquireFunction = Callable[..., AbstractContextManager[Any]]
"""What borrows a service: `forebay.acquire` or the `acquire` of a pool."""

# After these the service is of no more use to its holder; anything else it survives.
_LOST = (BrokenError, DeadlineError, StaleError)


class ServiceEnv(gymnasium.Env[Observation, Action], Generic[Observation, Action]):
    """An environment over one service of a pool.

    A subclass sets `action_space` and `observation_space` and says in `begin` and `advance` what
    an episode is; both get the service, a proxy with the methods of its class.

    Args:
        service_spec: what to borrow: a service class or its `spec(...)`.
        acquire: the function that lends it; None for `forebay.acquire`, the process-wide pool.
        acquire_timeout: seconds to wait for a service.
        call_timeout: seconds for each call, or None for the pool's own default.
        reset_attempts: how many services are tried before `reset` gives up.
        lost_reward: the reward of a step whose service was lost.

    Attributes:
        service_spec: as given.
        losses: how many services this environment has lost so far.

    Affinity: one thread at a time.
    """

    def __init__(
        self,
        service_spec: Any,
        *,
        acquire: AcquireFunction | None = None,
        acquire_timeout: float = 30.0,
        call_timeout: float | None = None,
        reset_attempts: int = 5,
        lost_reward: float = 0.0,
    ):
        if reset_attempts < 1:
            raise ConfigError(f"reset_attempts is {reset_attempts}; at least 1 is needed")
        self.service_spec = service_spec
        self.losses = 0
        self._acquire = acquire
        self._acquire_timeout = acquire_timeout
        self._call_timeout = call_timeout
        self._reset_attempts = reset_attempts
        self._lost_reward = lost_reward
        self._lease: ExitStack | None = None
        self._service: Any = None
        self._running = False

    @abstractmethod
    def begin(
        self, service: Any, options: dict[str, Any] | None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode on `service`; return the first observation and its info.

        May be called again with another service when this one is lost in the middle.
        """

    @abstractmethod
    def advance(
        self, service: Any, action: Action
    ) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Take one step; return observation, reward, terminated, truncated and info."""

    @abstractmethod
    def lost_observation(self) -> Observation:
        """Return the observation of a step whose service was lost; inside the space."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode, borrowing a service if none is held.

        Raises:
            forebay.BrokenError: the last of `reset_attempts` services was lost as well.
            forebay.DeadlineError: likewise, or no service came free in `acquire_timeout`.
        """
        super().reset(seed=seed)
        self._running = False
        for attempt in range(1, self._reset_attempts + 1):
            try:
                result = self.begin(self._borrow(), options)
            except _LOST as error:
                waited = self._service is None and isinstance(error, DeadlineError)
                self._lose(error)
                if waited or attempt == self._reset_attempts:
                    raise
            else:
                self._running = True
                return result
        raise AssertionError("unreachable: the last attempt returns or raises")

    def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Take one step.

        A lost service gives `lost_observation()`, `lost_reward` and truncated, and in `info`
        `error` (the message), `error_type` (the exception's name) and `error_details` (what is
        known of the death: cause, exit code, signal, last lines of output).

        Raises:
            gymnasium.error.ResetNeeded: no episode runs.
        """
        if not self._running:
            raise gymnasium.error.ResetNeeded("no episode runs; call reset() first")
        try:
            return self.advance(self._service, action)
        except _LOST as error:
            self._lose(error)
            return self.lost_observation(), self._lost_reward, False, True, loss_info(error)

    def close(self) -> None:
        """Give the service back; idempotent. A later `reset` borrows again."""
        self._running = False
        self._service = None
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.close()

    def fork(self, *, same_seed: bool = False) -> Self:
        """Another environment in the same state: with a live copy of the service, if one is held.

        It takes milliseconds, whatever led to the state; the two go their own ways from here, and
        each is closed by itself. What a subclass keeps outside of its service is copied deeply,
        what it was given (`acquire`, the spec) is shared.

        Args:
            same_seed: keep the state of the service's random generators, of `np_random` and of the
                environment's own spaces; otherwise the copy gets new ones.

        Raises:
            As `lease.fork`.
        """
        kept = ("service_spec", "spec", "_acquire", "_lease", "_service")
        forked = copy.copy(self)
        memo: dict[int, Any] = {}  # what two attributes share is shared in the copy too
        for name, value in vars(self).items():
            if name not in kept:
                setattr(forked, name, copy.deepcopy(value, memo))
        forked._service = forked._lease = None
        if not same_seed:
            forked._np_random = None  # made on first use
            for name in ("action_space", "observation_space"):
                if name in vars(forked):  # a space of the class has one generator for all
                    vars(forked)[name].seed()
        if self._service is not None:
            stack = ExitStack()
            copies = self._service.lease.fork(1, same_seed=same_seed, timeout=self._acquire_timeout)
            [service] = stack.enter_context(copies)
            forked._lease = stack
            if self._call_timeout is not None:
                service = service.lease.options(timeout=self._call_timeout)
            forked._service = service
        return forked

    @property
    def service(self) -> Any:
        """The service now held, or None."""
        return self._service

    def _borrow(self) -> Any:
        if self._service is not None:
            return self._service
        stack = ExitStack()
        service = stack.enter_context(
            self._lender()(self.service_spec, timeout=self._acquire_timeout)
        )
        self._lease = stack
        if self._call_timeout is not None:
            service = service.lease.options(timeout=self._call_timeout)
        self._service = service
        return service

    def _lender(self) -> AcquireFunction:
        if self._acquire is not None:
            return self._acquire
        import forebay  # the pool is loaded only where the default one is used

        return forebay.acquire

    def _lose(self, error: Error) -> None:
        """Drop the service after `error`; the pool ends it, since it is of no use to anybody."""
        if self._service is not None:
            self.losses += 1
            # A log record would keep the error, and with it the frames of the lease.
            logger.warning("environment lost its service: %s", str(error))
        with contextlib.suppress(Error):
            self.close()
