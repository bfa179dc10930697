"""The options of the machine's gcc, read from what it says about itself.

`gcc --help=optimizers -Q` and `gcc --help=params -Q` print one option a line, with its argument
and its present value, in a format that is documented nowhere and changes with each release:

      -fgcse                                [disabled]
      -fira-algorithm=[CB|priority]         CB
      -flifetime-dse=<0,2>                  2
      --param=max-unroll-times=             8

A line that fits none of the known shapes is kept in `OptionSpace.skipped` with its reason and
never fatal: an unknown option is one that is not tuned.
"""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

__all__ = ["Option", "OptionSpace", "options_of", "parse_options", "tunable"]

# Options that do not compete with -Os for the same program, by how they begin, with the reason.
EXCLUDED = {
    "-fshort-enums": "changes the size of types shared with the C library",
    "-fshort-wchar": "changes the size of types shared with the C library",
    "-fpack-struct": "changes the layout of structures shared with the C library",
    "-flive-patching": "turns optimisations off for kernel patches",
    "-fprofile-reorder-functions": "needs a profile",
    "-fbranch-probabilities": "needs a profile",
    "-fprofile-partial-training": "needs a profile",
    "-fprofile-values": "needs a profile",
    "-fvpt": "needs a profile",
    "-ftree-parallelize-loops": "links a thread library",
    "-fpatchable-function-entry": "adds room for patches",
    "-ftrivial-auto-var-init": "adds stores on purpose",
    "-fharden-compares": "adds code on purpose",
    "-fharden-conditional-branches": "adds code on purpose",
    "-fstack-clash-protection": "adds code on purpose",
    "-fstack-protector": "adds code on purpose",
    "-fstack-check": "adds code on purpose",
    "-fsplit-stack": "needs another linker",
    "-ftrapv": "adds code on purpose",
}
# Parameters of what does not run here: analyzer, sanitizers, memory of the compiler, debug dumps.
EXCLUDED_PARAMETERS = re.compile(
    r"--param=(analyzer|asan|hwasan|tsan|openacc|parloops|lto|ggc|tm-|cxx|comdat|lazy-modules"
    r"|ranger-debug|threader-debug|min-nondebug|hash-table|gimple-fe|.*vartrack|min-pagesize"
    r"|use-after-scope|profile|stack-clash|destructive|constructive|max-debug|dwarf)"
)

_LINE = re.compile(r"^\s+(?P<name>-[^\s=\[<]+(?:=[^\s=\[<]+)?=?)(?P<argument>\S*)\s*(?P<value>.*)$")
_RANGE = re.compile(r"^<(-?\d+),(-?\d+)>$")
_CHOICE = re.compile(r"^\[([^\]]+)\]$")
_EXPLICIT_MAX = 10  # ranges up to this wide are listed in full


@dataclass(frozen=True, slots=True)
class Option:
    """One option and what it may be set to.

    Attributes:
        name: as gcc prints it, with its "=" if it takes an argument.
        kind: "switch" (-fX or -fno-X), "choice" or "number".
        words: the arguments of a choice.
        low: least number.
        high: greatest number, or None where gcc states none.
        default: the value now in force as gcc prints it, or "" where it prints none.
    """

    name: str
    kind: Literal["switch", "choice", "number"]
    words: tuple[str, ...] = ()
    low: int = 0
    high: int | None = None
    default: str = ""

    def flags(self) -> tuple[str, ...]:
        """List the flags that set this option, other than to its default.

        A wide range is represented by its ends and by the default scaled by powers of two.
        """
        return tuple(flag for value, flag in self._settings() if value != self.default)

    def _settings(self) -> list[tuple[str, str]]:
        if self.kind == "switch":
            off = self.name.replace("-f", "-fno-", 1)
            return [("[enabled]", self.name), ("[disabled]", off)]
        words = self.words if self.kind == "choice" else map(str, self._numbers())
        return [(word, self.name + word) for word in words]

    def _numbers(self) -> list[int]:
        high = self.high
        if high is not None and high - self.low < _EXPLICIT_MAX:
            return list(range(self.low, high + 1))
        middle = int(self.default) if _is_number(self.default) else self.low
        wanted = {self.low, self.low + 1, middle, *(middle >> i for i in (1, 2, 4))}
        wanted |= {middle << i for i in (1, 2, 4)}
        top = high if high is not None else max(middle << 4, 16)
        return sorted(number for number in wanted | {top} if self.low <= number <= top)


@dataclass(frozen=True, slots=True)
class OptionSpace:
    """The options that were understood, and the lines that were not.

    Attributes:
        options: in the order of gcc's output.
        skipped: (line, reason) of each other line that names an option.
    """

    options: tuple[Option, ...]
    skipped: tuple[tuple[str, str], ...]


def parse_options(text: str) -> OptionSpace:
    """Parse the output of `gcc --help=optimizers -Q` or `gcc --help=params -Q`."""
    options: list[Option] = []
    skipped: list[tuple[str, str]] = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            if line.lstrip().startswith("-"):
                skipped.append((line.strip(), "not understood"))
            continue
        parsed = _option(match["name"], match["argument"], match["value"].strip())
        if isinstance(parsed, Option):
            options.append(parsed)
        else:
            skipped.append((line.strip(), parsed))
    return OptionSpace(tuple(options), tuple(skipped))


def tunable(spaces: Iterable[OptionSpace]) -> tuple[Option, ...]:
    """Choose the options that may be tuned for size, without those that change the meaning.

    Options come in a fixed order: those of `spaces`, duplicates dropped.
    """
    chosen: dict[str, Option] = {}
    for space in spaces:
        for option in space.options:
            name = option.name.rstrip("=")
            excluded = name.startswith(tuple(EXCLUDED)) or EXCLUDED_PARAMETERS.match(name)
            if not excluded and option.flags():
                chosen.setdefault(option.name, option)
    return tuple(chosen.values())


@functools.cache
def options_of(gcc: str = "gcc") -> tuple[Option, ...]:
    """Ask the compiler `gcc` for what can be tuned on top of -Os.

    Returns:
        The tunable options, optimisation switches before parameters; defaults are those of -Os.

    Raises:
        OSError: there is no such compiler.
        subprocess.SubprocessError: it does not answer.

    Cost: two short runs of gcc, once per process and compiler.
    """
    return tunable(parse_options(_ask(gcc, topic)) for topic in ("optimizers", "params"))


def _ask(gcc: str, topic: str) -> str:
    command = [gcc, "-Os", "-Q", f"--help={topic}"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20.0).stdout


def _option(name: str, argument: str, value: str) -> Option | str:
    """Build the option of one line, or say why not."""
    if not name.startswith(("-f", "--param=")):
        return "neither a switch nor a parameter of the optimiser"
    if value.startswith("[available in"):
        return "for another language"
    if not name.endswith("="):
        return _switch(name, argument, value)
    known = "" if value.startswith("[") else value
    if choice := _CHOICE.match(argument):
        return Option(name, "choice", words=tuple(choice[1].split("|")), default=known)
    if bounds := _RANGE.match(argument):
        low, high = int(bounds[1]), int(bounds[2])
        return Option(name, "number", low=low, high=high, default=known)
    if argument == "<number>" or (not argument and _is_number(value)):
        low = min(0, int(value)) if _is_number(value) else 0
        return Option(name, "number", low=low, default=known)
    return "an argument of unknown form"


def _switch(name: str, argument: str, value: str) -> Option | str:
    if argument:
        return "an argument of unknown form"
    if name.startswith("-fno-"):
        return "the negative of another option"
    if value in ("[enabled]", "[disabled]", ""):
        return Option(name, "switch", default=value)
    return "an alias" if value.startswith("-f") else "a value of unknown form"


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+", text) is not None
