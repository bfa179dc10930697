"""The service behind one environment of a vector environment.

It makes the environment by the function that the client sent, steps it, and writes what comes of
it into its own region; the answer to a call holds only what has no fixed offset there.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from forebay.errors import ConfigError
from forebay.gym._layout import HEAD_BYTES, OUTCOME, layout_of, writer
from forebay.memory import Arena
from forebay.pool import Reset, Service

PAGE_BYTES = 4096

RESERVED = frozenset({"reset", "step", "close"})
"""Names that `call` refuses, as AsyncVectorEnv does: they have methods of their own."""

Answer = tuple[dict[str, Any], tuple[Any, dict[str, Any]] | None, Any] | None
"""Info, final observation and info of an episode that ended in this step, and the observation
where the region has no room for it; None if all of these are absent."""


class Description(NamedTuple):
    """What a client must know of an environment before it uses it.

    Attributes:
        spaces: observation and action space, pickled: many environments have the same.
        metadata: of the environment.
        render_mode: of the environment.
        descriptor: number in the service's process under which its region can be opened.
        offset: where the environment's part begins there.
        bytes: how much it is.
        fixed: whether observations lie there too, and not in the answers.
    """

    spaces: bytes
    metadata: dict[str, Any]
    render_mode: str | None
    descriptor: int
    offset: int
    bytes: int
    fixed: bool


class PooledEnvironment(Service):
    """One environment, made again by its function each time that the service comes back.

    Args:
        function: the function that makes it, pickled by value with cloudpickle.
        registered: environments that the client had registered with gymnasium, likewise.
        code: distinguishes versions of the modules that the function refers to.
    """

    resets = Reset.METHOD

    def __init__(self, function: bytes, registered: bytes, code: tuple[Any, ...]) -> None:
        for name, spec in pickle.loads(registered).items() if registered else ():
            gymnasium.registry.setdefault(name, spec)
        self._function: Callable[[], gymnasium.Env[Any, Any]] = pickle.loads(function)
        self._env = self._make()
        self._spaces = (self._env.observation_space, self._env.action_space)
        self._layout = layout_of(self._env.observation_space)
        size = HEAD_BYTES if self._layout is None else self._layout.bytes
        self._arena = Arena(-(-size // PAGE_BYTES) * PAGE_BYTES, name="environment")
        self._buffer = self._arena.allocate(size)
        self._memory = memoryview(self._buffer)
        self._descriptor = self._arena.share(self._buffer.reference.chunk)
        self._write = None if self._layout is None else writer(self._layout.tree, self._memory)
        self._forget()

    def describe(self) -> Description:
        """What the client must know."""
        import cloudpickle  # type: ignore[import-not-found, import-untyped, unused-ignore]

        return Description(
            cloudpickle.dumps(self._spaces),
            dict(self._env.metadata),
            self._env.render_mode,
            self._descriptor,
            self._buffer.reference.offset,
            len(self._buffer),
            self._layout is not None,
        )

    def begin(self, mode: str, seed: int | None, options: dict[str, Any] | None) -> Answer:
        """Reset the environment; steps end episodes as `mode` says from now on."""
        self.arm(mode, due=False)
        observation, info = self._env.reset(seed=seed, options=options)
        return self._answer(observation, info, None)

    def arm(self, mode: str, *, due: bool) -> None:
        """Set the autoreset mode, and whether the next step is to reset."""
        chosen = AutoresetMode(mode)
        self._same_step = chosen is AutoresetMode.SAME_STEP
        self._next_step = chosen is AutoresetMode.NEXT_STEP
        self._due = due

    def step(self, action: Any) -> Answer:
        """Take one step, or reset where that is due."""
        if self._due:
            self._due = False
            observation, info = self._env.reset()
            OUTCOME.pack_into(self._memory, 0, 0.0, False, False)
            return self._answer(observation, info, None)
        observation, reward, terminated, truncated, info = self._env.step(action)
        final = None
        if terminated or truncated:
            if self._same_step:
                final = (observation, info)
                observation, info = self._env.reset()
            self._due = self._next_step
        OUTCOME.pack_into(self._memory, 0, reward, terminated, truncated)
        return self._answer(observation, info, final)

    def step_integer(self, action: int) -> Answer:
        """The same with an action of a Discrete space, as numpy's int64."""
        return self.step(np.int64(action))

    def step_array(self, action: bytes) -> Answer:
        """The same with the bytes of an array of the action space's shape and dtype."""
        space = self._spaces[1]
        return self.step(np.frombuffer(action, space.dtype).reshape(space.shape).copy())

    def attribute(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """An attribute of the environment or a wrapper, called where it can be; pickled."""
        import cloudpickle

        if name in RESERVED:
            raise ConfigError(f"call({name!r}) is not possible; use the method {name}()")
        value = self._env.get_wrapper_attr(name)
        return bytes(cloudpickle.dumps(value(*args, **kwargs) if callable(value) else value))

    def assign(self, name: str, value: bytes) -> None:
        """Set an attribute of the environment or the wrapper that has it."""
        self._env.set_wrapper_attr(name, pickle.loads(value))

    def reset(self) -> None:
        """Between two leases: close the environment and make another one.

        Raises:
            ConfigError: it has other spaces than the first; the pool then replaces this service.
        """
        self._env.close()
        self._env = self._make()
        if (self._env.observation_space, self._env.action_space) != self._spaces:
            raise ConfigError("the function made an environment with other spaces than before")
        self._forget()

    def _make(self) -> gymnasium.Env[Any, Any]:
        """Make the environment, with fresh random numbers."""
        random.seed()
        np.random.seed()  # what environments of before that may use
        return self._function()

    def _forget(self) -> None:
        self._memory[:] = bytes(len(self._memory))
        self.arm(AutoresetMode.NEXT_STEP.value, due=False)

    def _answer(
        self, observation: Any, info: dict[str, Any], final: tuple[Any, dict[str, Any]] | None
    ) -> Answer:
        if self._write is None:
            return info, final, observation
        self._write(observation)
        if info or final is not None:
            return info, final, None
        return None
