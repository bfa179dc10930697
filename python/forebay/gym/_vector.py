"""A vector environment whose environments run in services of a pool."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium.error import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    NoAsyncCallError,
    ResetNeeded,
)
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array

from forebay.errors import ConfigError, Error
from forebay.gym._actions import Actions
from forebay.gym._layout import Layout, Reader
from forebay.gym._loss import as_raised, loss_info
from forebay.gym._seeds import mask_of, seeds_of
from forebay.gym._service_group import ServiceGroup, Targets
from forebay.gym._spaces import ObservationMode, VectorSpaces
from forebay.rpc._internal import message

RESET_TRIES = 3
"""Services tried for one environment by one reset, with `restart`."""


class PooledVectorEnv(VectorEnv[Any, Any, Any]):
    """A gymnasium vector environment over services, made by `forebay.gym.make_vec`.

    Observations, rewards, ends of episodes and infos are those of `SyncVectorEnv` with the same
    functions, seeds and actions.
    Spaces are made when they are first read.

    Affinity: one thread at a time; no event loop.

    Attributes:
        num_envs: how many environments there are.
        autoreset_mode: what happens when an episode has ended.
        losses: how many environments were lost so far.
    """

    def __init__(
        self,
        group: ServiceGroup,
        *,
        copy: bool,
        observation_mode: ObservationMode,
        autoreset_mode: AutoresetMode,
        restart: bool,
    ) -> None:
        self._group = group
        self._spaces = VectorSpaces(group.slots, observation_mode)
        self._copy = copy
        self._restart = restart
        self._mode: str = autoreset_mode.value
        self._pending: tuple[str, Targets] | None = None
        self._unready: dict[int, str] = {}
        """Environments that must be reset before the next step, and why."""
        self.autoreset_mode = autoreset_mode
        self.num_envs = len(group.slots)
        self.losses = 0
        self._everyone: Targets = tuple(range(self.num_envs))
        self._observed: list[Any] = [None] * self.num_envs
        """The last observations, where they travel with the answers."""
        self._known: list[Any] = []
        self._look()
        first = self._spaces.description
        self.metadata = {**first.metadata, "autoreset_mode": autoreset_mode}
        self.render_mode = first.render_mode

    @functools.cached_property
    def single_observation_space(self) -> Any:  # type: ignore[override]
        """Of one environment."""
        return self._spaces.single_observation

    @functools.cached_property
    def observation_space(self) -> Any:  # type: ignore[override]
        """Of all environments."""
        return self._spaces.observation

    @functools.cached_property
    def single_action_space(self) -> Any:  # type: ignore[override]
        """Of one environment."""
        return self._spaces.single_action

    @functools.cached_property
    def action_space(self) -> Any:  # type: ignore[override]
        """Of all environments."""
        return self._spaces.action

    @property  # type: ignore[misc]
    def np_random(self) -> Any:
        """The generators of the environments, as copies."""
        return self.get_attr("np_random")

    @property
    def np_random_seed(self) -> tuple[Any, ...]:  # type: ignore[override]
        """The seeds of the environments' generators."""
        return self.get_attr("np_random_seed")

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all environments, or those that `options["reset_mask"]` says.

        An environment that was lost gets another service.

        Args:
            seed: one number, to which each environment adds its own, or one each.
            options: given to the environments without the mask.

        Returns:
            Observations, those of the environments that were not reset included, and infos.

        Raises:
            forebay.RemoteError: an environment raised; `.environment` says which.
            forebay.BrokenError, forebay.DeadlineError: a service was lost, likewise.
        """
        self.reset_async(seed, options)
        return self.reset_wait()

    def reset_async(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        """Begin a reset; arguments as of `reset`. Its result comes from `reset_wait`."""
        self._expect(None, "reset_async")
        seeds = seeds_of(seed, self.num_envs)
        targets, options = mask_of(options, self.num_envs)
        self._again = [(index, seeds[index], options) for index in targets]
        self._fill(targets)
        self._group.begin(targets, [self._begin_message(each) for each in self._again])
        self._pending = ("reset", targets)

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        """Wait for the reset that was begun.

        Args:
            timeout: seconds; environments that have not answered by then are lost.
        """
        targets, results, errors = self._finish("reset", timeout)
        answers = dict(zip(targets, results, strict=True))
        self.losses += len(errors)
        for attempt in range(RESET_TRIES if self._restart else 0):
            errors = self._try_again(errors, answers, last=attempt == RESET_TRIES - 1)
        for index in targets:
            self._unready.pop(index, None)
        self._refuse(errors)
        infos: dict[str, Any] = {}
        for index in targets:
            infos = self._note(infos, index, answers[index])
        return self._read()[0], infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take one step in every environment.

        Args:
            actions: one for each, in the batched action space.

        Returns:
            Observations, rewards, terminations, truncations and infos, as of SyncVectorEnv.
            With `restart`, a lost environment is truncated: its observation is the last one, its
            reward 0, and its info has `error`, `error_type` and `error_details`.

        Raises:
            gymnasium.error.ResetNeeded: an environment has to be reset first.
            forebay.RemoteError, forebay.BrokenError, forebay.DeadlineError: as `reset`; the others
                have taken their step. Not with `restart`.
        """
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: Any) -> None:
        """Begin a step. Its result comes from `step_wait`."""
        self._expect(None, "step_async")
        if self._unready:
            reasons = "; ".join(f"environment {i} {why}" for i, why in self._unready.items())
            raise ResetNeeded(f"{reasons}: reset() first, or those alone by options['reset_mask']")
        self._group.begin(self._everyone, self._actions.encode(actions))
        self._pending = ("step", self._everyone)

    def step_wait(self, timeout: float | None = None) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Wait for the step that was begun.

        Args:
            timeout: seconds; environments that have not answered by then are lost.
        """
        _, answers, errors = self._finish("step", timeout)
        infos: dict[str, Any] = {}
        read = None
        if errors:
            self.losses += len(errors)
            if not self._restart:
                self._refuse(errors)
            read = self._replace_lost(errors, answers)
        for index, answer in enumerate(answers):
            if answer is not None:
                infos = self._note(infos, index, answer)
        observations, rewards, terminations, truncations = read or self._read()
        for index in errors:
            rewards[index], terminations[index], truncations[index] = 0.0, False, True
        if self.autoreset_mode is AutoresetMode.DISABLED:
            ended = np.logical_or(terminations, truncations).nonzero()[0].tolist()
            self._unready = dict.fromkeys(ended, "has ended its episode")
        return observations, rewards, terminations, truncations, infos

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of every environment, or read an attribute that cannot be called."""
        self.call_async(name, *args, **kwargs)
        return self.call_wait()

    def call_async(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Begin a call. Its results come from `call_wait`."""
        self._expect(None, "call_async")
        self._group.begin(
            self._everyone, [message("attribute", (name, args, kwargs))] * self.num_envs
        )
        self._pending = ("call", self._everyone)

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Wait for the call that was begun; one result for each environment."""
        _, answers, errors = self._finish("call", timeout)
        self._refuse(errors, unready=False)
        return tuple(pickle.loads(answer) for answer in answers)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """An attribute of every environment."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of every environment: to one value, or to a list or tuple of them."""
        import cloudpickle  # type: ignore[import-not-found, import-untyped, unused-ignore]

        self._expect(None, "set_attr")
        each = values if isinstance(values, (list, tuple)) else [values] * self.num_envs
        if len(each) != self.num_envs:
            raise ConfigError(
                f"{len(each)} values were given for {self.num_envs} environments: one each is"
                " needed, or one for all that is no list"
            )
        messages = [message("assign", (name, cloudpickle.dumps(value))) for value in each]
        _, errors = self._group.call(self._everyone, messages)
        self._refuse(errors, unready=False)

    def render(self) -> tuple[Any, ...]:
        """What every environment renders."""
        return self.call("render")

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Give the services back; each makes its environment again, without a wait here.

        Args:
            timeout: seconds to wait for a call that is under way.
            terminate: do not wait for it; its services are ended.
        """
        if self._pending is not None:
            self._pending = None
            self._group.finish(0.0 if terminate else timeout)
        self._group.close()

    def __del__(self) -> None:
        """Give the services back where `close` was forgotten."""
        if not self.closed and hasattr(self, "_everyone"):
            self.close(terminate=True)

    @functools.cached_property
    def _actions(self) -> Actions:
        return Actions(self.single_action_space, self.action_space, self.num_envs)

    def _begin_message(self, each: tuple[int, int | None, dict[str, Any] | None]) -> Any:
        _, seed, options = each
        return message("begin", (self._mode, seed, options))

    def _expect(self, pending: str | None, method: str) -> Targets:
        """Raise unless a call of this kind, or none, is under way; its targets."""
        if self.closed:
            raise ClosedEnvironmentError(f"{method}() after close()")
        known, targets = self._pending or (None, ())
        if known == pending:
            return targets
        if known is not None:
            raise AlreadyPendingCallError(f"{method}() before {known}_wait()", known)
        raise NoAsyncCallError(f"{method}() without {pending}_async()", str(pending))

    def _finish(
        self, kind: str, timeout: float | None
    ) -> tuple[Targets, list[Any], dict[int, BaseException]]:
        """Wait for what was begun: its targets, their answers, and the errors."""
        targets = self._expect(kind, f"{kind}_wait")
        self._pending = None
        try:
            return (targets, *self._group.finish(timeout, look=kind == "step"))
        except BaseException:
            self._unready |= dict.fromkeys(targets, "was lost when its call was interrupted")
            raise

    def _fill(self, targets: Targets) -> None:
        """Borrow services for targets that have none."""
        lost = [index for index in targets if self._group.slots[index] is None]
        for index in lost:
            self._group.replace(index)
            self._spaces.check(self._group.slots, index)
        if lost:
            self._look()

    def _look(self) -> None:
        """Read from the regions of the present services."""
        known = [slot and slot.known for slot in self._group.slots]
        # A lost environment has no region; what was read last is kept for it.
        self._known = [new or old for new, old in zip(known, self._known or known, strict=True)]
        self._fixed = all(each.layout is not None for each in self._known)
        parts = [
            (each.layout if self._fixed else Layout((), 0), each.window, each.description.offset)
            for each in self._known
        ]
        self._reader = Reader(parts, copy=self._copy)

    def _read(self) -> tuple[Any, Any, Any, Any]:
        """Observations, rewards, terminations and truncations as they are now."""
        read = self._reader.read()
        if self._fixed:
            return read
        space = self.single_observation_space
        empty = create_empty_array(space, n=self.num_envs, fn=np.zeros)
        batch = concatenate(space, self._observed, empty)  # type: ignore[arg-type]
        return (deepcopy(batch) if self._copy else batch, *read[1:])

    def _note(self, infos: dict[str, Any], index: int, answer: Any) -> dict[str, Any]:
        """Add what an environment answered to the infos."""
        if answer is None:
            return infos
        info, final, observation = answer
        if not self._fixed:
            self._observed[index] = observation
        if final is not None:
            ended = {"final_obs": final[0], "final_info": final[1]}
            infos = self._add_info(infos, ended, index)
        return self._add_info(infos, info, index)

    def _refuse(self, errors: dict[int, BaseException], *, unready: bool = True) -> None:
        """Raise the first of `errors`, the others in its notes."""
        if not errors:
            return
        for index in errors:
            if unready or self._group.slots[index] is None:
                self._unready[index] = "failed"
        first, *others = sorted(errors)
        for index in others:
            errors[first].add_note(str(errors[index]))
        raise as_raised(errors[first])

    def _try_again(
        self, errors: dict[int, BaseException], answers: dict[int, Any], *, last: bool
    ) -> dict[int, BaseException]:
        """Reset the environments that failed on other services; the errors that remain."""
        remaining: dict[int, BaseException] = {}
        for each in self._again:
            index = each[0]
            if index not in errors:
                continue
            try:
                self._group.replace(index)
                self._spaces.check(self._group.slots, index)
                answers[index] = self._group.call_one(index, self._begin_message(each))
            except Error as error:
                if last:
                    raise
                remaining[index] = error
        if errors:
            self._look()
        return remaining

    def _replace_lost(self, errors: dict[int, BaseException], answers: list[Any]) -> Any:
        """Replace the services that were lost in a step, and add their answers.

        Returns:
            What the environments left, the last of the lost ones among it; None where all have
            something newer.
        """
        last = {index: self._last_of(index) for index in errors}
        same_step = self.autoreset_mode is AutoresetMode.SAME_STEP
        read = None
        for index, error in errors.items():
            info = loss_info(error)
            answers[index] = (
                ({}, (last[index], info), None) if same_step else (info, None, last[index])
            )
        if not same_step:
            if not self._fixed:
                self._observed = [answer[2] for answer in answers]
            read = self._read()
        for index in errors:
            self._group.replace(index)
            self._spaces.check(self._group.slots, index)
            answers[index] = self._resume(index, answers[index])
        self._look()
        return read

    def _last_of(self, index: int) -> Any:
        return self._reader.row(index) if self._fixed else self._observed[index]

    def _resume(self, index: int, answer: Any) -> Any:
        """Resume a new environment as its mode says; returns its answer to the step."""
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            begun = self._group.call_one(index, self._begin_message((index, None, None)))
            fresh = ({}, None, None) if begun is None else begun
            return fresh[0], answer[1], fresh[2]
        due = self.autoreset_mode is AutoresetMode.NEXT_STEP
        self._group.call_one(index, message("arm", (self._mode,), {"due": due}))
        return answer
