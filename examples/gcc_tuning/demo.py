"""The demo's command line: `python -m examples.gcc_tuning`."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from rich.console import Console

from . import act_one, act_two
from .app import Program

__all__ = ["main"]

PROGRAMS: tuple[Program, ...] = get_args(Program)
BUDGET = 80
QUICK_BUDGET = 16
BUDGET_MIN = 4
_EXAMPLES = """examples:
  python -m examples.gcc_tuning                             both acts, all programs
  python -m examples.gcc_tuning --quick                     a look at it in half a minute
  python -m examples.gcc_tuning --act one                   cold and warm, killed, hung
  python -m examples.gcc_tuning --act two --programs lz,sha256 --budget 300 --seed 7
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the demo.

    Returns:
        The exit code: 0, or 1 when something is missing.
    """
    options = _parser().parse_args(arguments)
    console = Console() if sys.stdout.isatty() else Console(width=120)
    names = _programs(options.programs)
    plan = act_two.Plan(
        programs=names,
        budget=options.budget or (QUICK_BUDGET if options.quick else BUDGET),
        seed=options.seed,
        threads=min(os.cpu_count() or 1, len(names)),
        output_dir=Path(options.output),
    )
    if options.act != "one" and shutil.which("gcc") is None:
        print("act two needs gcc; install it, or play --act one", file=sys.stderr)
        return 1
    if options.act != "two":
        act_one.run(lambda line: console.print(line, highlight=False, soft_wrap=True))
        console.print()
    if options.act != "one":
        act_two.run(console, plan)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.gcc_tuning",
        description="Watch warm services answer, then tune gcc's flags by requests of a server.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--act", choices=("one", "two", "both"), default="both", help="what to play (both)"
    )
    parser.add_argument(
        "--quick", action="store_true", help=f"{QUICK_BUDGET} trials a program, not {BUDGET}"
    )
    parser.add_argument("--budget", type=_budget, help=f"trials for each program ({BUDGET})")
    parser.add_argument("--seed", type=int, default=1, help="of the search (1)")
    parser.add_argument("--programs", metavar="A,B", help="which programs (all)")
    parser.add_argument(
        "--output", default="build/demo", help="folder of the picture and flags (build/demo)"
    )
    return parser


def _budget(text: str) -> int:
    value = int(text)
    if value < BUDGET_MIN:
        raise argparse.ArgumentTypeError(f"{value} is less than {BUDGET_MIN}: one trial is killed")
    return value


def _programs(text: str | None) -> tuple[Program, ...]:
    if text is None:
        return PROGRAMS
    known: dict[str, Program] = {name: name for name in PROGRAMS}
    wanted = dict.fromkeys(text.split(","))
    unknown = [name for name in wanted if name not in known]
    if unknown:
        print(f"no program {unknown[0]!r}; there are: {', '.join(PROGRAMS)}", file=sys.stderr)
        raise SystemExit(2)
    return tuple(known[name] for name in wanted)
