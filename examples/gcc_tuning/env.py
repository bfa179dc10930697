"""A Gymnasium environment that tunes gcc's flags for the size of one program.

An episode is one program, starting from -Os; an action sets every option at once, 0 leaving one
alone. The reward is the size saved since the step before, as a share of the size at -Os, so that
the rewards of an episode add up to what was saved in the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from forebay.gym import AcquireFunction, ServiceEnv

from .compiler import Compiler
from .flags import Option, options_of
from .results import Result

__all__ = ["BASE", "OPCODES", "SECTIONS", "GccEnv"]

BASE = "-Os"
SECTIONS = (
    ".text",
    ".text.startup",
    ".text.unlikely",
    ".rodata",
    ".rodata.str1.1",
    ".data",
    ".bss",
)
OPCODES = (
    *("add", "and", "bswap", "call", "cltq", "cmp", "cmpb", "cmpl", "dec", "div", "imul", "inc"),
    *("ja", "jae", "jb", "jbe", "je", "jg", "jge", "jl", "jle", "jmp", "jne", "jns", "js", "lea"),
    *("mov", "movaps", "movb", "movl", "movq", "movsbl", "movslq", "movups", "movzbl", "mul"),
    *("neg", "nop", "not", "or", "pop", "push", "rep", "ret", "rol", "ror", "sar", "sbb", "sete"),
    *("setne", "shl", "shr", "sub", "test", "xor", "xorps"),
    *("b", "bl", "cbz", "cbnz", "ldr", "ldrb", "ldp", "str", "strb", "stp"),
)
_OPCODE_INDEX = {name: index for index, name in enumerate(OPCODES)}

Values = dict[str, Any]
"""Arrays of int64 by name."""


class GccEnv(ServiceEnv[Values, NDArray[np.int64]]):
    """Tune one program; the compiler is a warm service of the pool.

    Args:
        source_dir: folder of the programs.
        program: which of them; `reset(options={"program": ...})` changes it.
        tuned: the options that the action sets; None for all that the machine's gcc offers.
        gcc: the compiler's name or path.
        acquire: who lends the compiler; None for the process-wide pool.
        call_timeout: seconds for one compilation with its self-check.

    Spaces:
        action: MultiDiscrete, one entry per option: 0 leaves it alone, n is its n-th flag.
        observation: `sections` (bytes, by `SECTIONS`), `opcodes` (counts, by `OPCODES` with all
            others last) and `flags` (the action that led here).

    A set of flags that gcc refuses, crashes on or never ends, or that miscompiles the program,
    changes nothing: the size stays what it was, the reward is 0, and `info` says why.

    `info` holds the program and the keys of `Result` but `cached`.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own convention

    def __init__(
        self,
        source_dir: str,
        program: str,
        *,
        tuned: Sequence[Option] | None = None,
        gcc: str = "gcc",
        acquire: AcquireFunction | None = None,
        call_timeout: float = 60.0,
    ):
        spec = Compiler.spec(source_dir=source_dir, gcc=gcc)
        super().__init__(spec, acquire=acquire, call_timeout=call_timeout)
        self.program = program
        self.tuned = tuple(options_of(gcc) if tuned is None else tuned)
        self._choices = tuple(option.flags() for option in self.tuned)
        sizes = [1 + len(choices) for choices in self._choices]
        self.action_space = gymnasium.spaces.MultiDiscrete(sizes)
        self.observation_space = gymnasium.spaces.Dict(
            sections=_counts(len(SECTIONS)),
            opcodes=_counts(len(OPCODES) + 1),
            flags=gymnasium.spaces.MultiDiscrete(sizes),
        )
        self._none = np.zeros(len(sizes), dtype=np.int64)
        self._base_bytes = self._bytes = 0
        self._measured = self._observe(None, self._none)

    def flags(self, action: NDArray[np.int64]) -> list[str]:
        """Spell out an action as gcc's options, without the leading -Os."""
        picked = zip(self._choices, action, strict=True)
        return [choices[int(number) - 1] for choices, number in picked if number]

    def begin(self, service: Any, options: dict[str, Any] | None) -> tuple[Values, dict[str, Any]]:
        """Compile the program at -Os."""
        self.program = (options or {}).get("program", self.program)
        result = service.compile(self.program, [BASE], opcodes=True)
        if result["outcome"] != "good":
            raise RuntimeError(f"{self.program} does not build at {BASE}: {result['message']}")
        self._base_bytes = self._bytes = result["bytes"]
        self._measured = self._observe(result, self._none)
        return self._measured, self._info(result)

    def advance(
        self, service: Any, action: NDArray[np.int64]
    ) -> tuple[Values, float, bool, bool, dict[str, Any]]:
        """Compile the program at -Os and the action's flags."""
        result = service.compile(self.program, [BASE, *self.flags(action)], opcodes=True)
        reward = 0.0
        if result["outcome"] == "good":
            reward = (self._bytes - result["bytes"]) / self._base_bytes
            self._bytes = result["bytes"]
            self._measured = self._observe(result, action)
        else:
            self._measured = {**self._measured, "flags": np.asarray(action, dtype=np.int64).copy()}
        return self._measured, reward, False, False, self._info(result)

    def lost_observation(self) -> Values:
        """Return zeros: nothing was measured."""
        return self._observe(None, self._none)

    def _info(self, result: Result) -> dict[str, Any]:
        """Tell all of a result but whether it was cached: that depends on the service's past."""
        told = {name: value for name, value in result.items() if name != "cached"}
        return {"program": self.program, **told}

    def _observe(self, result: Result | None, action: NDArray[np.int64]) -> Values:
        sections = result["sections"] if result else {}
        opcodes = np.zeros(len(OPCODES) + 1, dtype=np.int64)
        for name, count in (result["opcodes"] if result else {}).items():
            opcodes[_OPCODE_INDEX.get(name, len(OPCODES))] += count
        return {
            "sections": np.array([sections.get(name, 0) for name in SECTIONS], dtype=np.int64),
            "opcodes": opcodes,
            "flags": np.asarray(action, dtype=np.int64).copy(),
        }


def _counts(length: int) -> gymnasium.spaces.Box:
    return gymnasium.spaces.Box(0, np.iinfo(np.int64).max, (length,), np.int64)
