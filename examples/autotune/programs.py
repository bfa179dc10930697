"""The programs: many generated ones to train on, the demo's own to judge by."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from examples.gcc_tuning.app import PROGRAMS
from examples.gcc_tuning.toolchain import program_names

__all__ = ["HELD_OUT", "TRAINING", "kernels", "source", "training", "write"]

HELD_OUT: tuple[str, ...] = program_names(PROGRAMS)
"""Programs that nothing is learned from, and that nobody generated."""

TRAINING: tuple[str, ...] = tuple(f"made_{number}" for number in range(200))
"""Programs to train on."""

_KERNELS = Path(__file__).with_name("kernels.c")
_BEGINNING = re.compile(r"^//// (\w+)\n", re.MULTILINE)
_HEAD = """\
#include <stdio.h>
#include <string.h>

static unsigned draw(unsigned *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}
"""


def training(count: int, seed: int) -> list[str]:
    """So many programs to train on, another choice for each seed."""
    return random.Random(seed).sample(TRAINING, count)


@cache
def source(name: str) -> str:
    """The text of a program, the same on every machine.

    Raises:
        ValueError: there is no program of that name.
    """
    if name in HELD_OUT:
        return (PROGRAMS / f"{name}.c").read_text()
    if name not in TRAINING:
        raise ValueError(
            f"no program {name!r}; there are {TRAINING[0]} to {TRAINING[-1]}, {HELD_OUT}"
        )
    return _generated(random.Random(name))


def write(names: Sequence[str], folder: Path) -> None:
    """Write the sources of programs into a folder."""
    for name in names:
        (folder / f"{name}.c").write_text(source(name))


@cache
def kernels() -> dict[str, str]:
    """The parts that generated programs are put together from, by name."""
    _, *pieces = _BEGINNING.split(_KERNELS.read_text())
    return dict(zip(pieces[::2], pieces[1::2], strict=True))


def _generated(rng: random.Random) -> str:
    """A program of two to four kernels, whose main prints what each computes."""
    chosen = rng.sample(sorted(kernels()), rng.randint(2, 4))
    parts = [_HEAD]
    for name in chosen:
        values = {
            "T": rng.choice(["unsigned char", "unsigned short", "unsigned", "unsigned long long"]),
            "R": rng.choice(["float", "double"]),
            "N": rng.randint(12, 96),
            "K": rng.randrange(3, 1000, 2),
        }
        parts += [f"#undef {macro}\n#define {macro} {value}" for macro, value in values.items()]
        function = f"unsigned {name}("
        kept = "static " if rng.random() < 0.5 else ""
        parts.append(kernels()[name].replace(function, kept + function))
    calls = (f'printf("%u\\n", {name}({rng.randrange(999)} + i));' for name in chosen)
    loop = "    for (unsigned i = 0; i < 3; i++) {\n        " + "\n        ".join(calls)
    parts.append(f"int main(void) {{\n{loop}\n    }}\n    return 0;\n}}\n")
    return "\n".join(parts)
