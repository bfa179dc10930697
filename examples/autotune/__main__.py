"""Run the example: learn by requests of a server, compare on programs held out, draw a picture."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .programs import HELD_OUT, TRAINING

if TYPE_CHECKING:
    import forebay

    from .study import Study

EXAMPLES = """\
examples:
  python -m examples.autotune --quick                       one seed, four programs
  python -m examples.autotune                               five seeds, eight programs
  python -m examples.autotune --quick --http 127.0.0.1:0    and watch it in the dashboard
  python -m examples.autotune --quick --engine dask         on a local Dask cluster
"""
INTERRUPTED = 130
QUICK: dict[str, Any] = {"seeds": [1], "programs": ["hash_table", "lz", "sha256", "sorting"]}


def main(argv: Sequence[str] | None = None) -> int:
    """Run it; returns the exit code."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.quick:
        parser.set_defaults(**QUICK)
        options = parser.parse_args(argv)  # what was said counts more than what is quick
    if (programs := options.rounds * options.episodes) > len(TRAINING):
        parser.error(
            f"--rounds {options.rounds} of --episodes {options.episodes} take {programs} programs;"
            f" there are {len(TRAINING)}"
        )
    if shutil.which("gcc") is None:
        print("this needs gcc; install it", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        study = _study(options)
    except KeyboardInterrupt:
        print("\ninterrupted; the server has ended", file=sys.stderr)
        return INTERRUPTED
    if not study.learned:
        return 1
    from .plot import plot

    print(f"\n{study.table()}\n\n{study.verdict()}; {study.minutes:.1f} minutes in all.")
    print(f"figures: {study.save(options.json)}\npicture: {plot(study, options.picture)}")
    return 0 if len(study.learned) == len(options.seeds) else 1


def _study(options: argparse.Namespace) -> Study:
    import forebay
    from forebay.errors import Error

    from .app import Learned, learn
    from .server import served
    from .study import Study

    began = time.monotonic()
    with served(_serving(options)) as (client, folder):
        sizes = {name: getattr(options, name) for name in ("rounds", "episodes", "trials")}
        given = {"held_out": options.programs, "folder": folder, **sizes}
        requests: list[forebay.Request] = []
        for seed in options.seeds:
            two_at_once = forebay.Submit(after=requests[-2:-1])
            requests.append(client.submit(learn, seed=seed, **given, options=two_at_once))
        learned: list[Learned] = []
        for seed, request in zip(options.seeds, requests, strict=True):
            _follow(seed, request)
            try:
                learned.append(request.result())
            except Error as error:  # the others go on, and are kept
                print(f"seed {seed} has failed: {error}", file=sys.stderr)
    return Study(learned, (time.monotonic() - began) / 60)


def _serving(options: argparse.Namespace) -> list[str]:
    """What `forebay serve` is told beside the application."""
    given = {"--engine": options.engine, "--scheduler": options.scheduler, "--http": options.http}
    return [word for name, value in given.items() if value for word in (name, value)]


def _follow(seed: int, request: forebay.Request) -> None:
    """Print a line for each round and each tenth of the requests."""
    told: Any = None
    for step in request.progress():
        total = step.total or 1
        now = (step.message.partition(",")[0], int(10 * step.done / total))
        if now != told:
            told = now
            print(f"seed {seed}: {step.done:g} of {total:g} requests, {step.message}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.autotune",
        description="Learn gcc's flags on some programs, and compare on others with searches.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="one seed, four programs to judge by")
    add("--seeds", type=_numbers, default=[1, 2, 3, 4, 5], metavar="N,N", help="1,2,3,4,5")
    add("--programs", type=_names, default=list(HELD_OUT), metavar="A,B", help="to judge by; all 8")
    add("--rounds", type=_positive, default=5, help="of training (%(default)s)")
    add("--episodes", type=_positive, default=12, help="programs of a round (%(default)s)")
    add("--trials", type=_positive, default=24, help="compilations, for each way (%(default)s)")
    add("--engine", help="of `forebay serve`, such as dask")
    add("--scheduler", metavar="ADDRESS", help="of a cluster here; one is started if left out")
    add("--http", metavar="HOST:PORT", help="serve the dashboard there (needs forebay[server])")
    build = Path("build/autotune")
    add("--json", type=Path, default=build / "autotune.json", help="figures (%(default)s)")
    add("--picture", type=Path, default=build / "autotune.png", help="drawn there (%(default)s)")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is below 1")
    return number


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _names(text: str) -> list[str]:
    names = text.split(",")
    if unknown := sorted(set(names) - set(HELD_OUT)):
        raise argparse.ArgumentTypeError(
            f"no program {unknown[0]}; there are {', '.join(HELD_OUT)}"
        )
    return names


if __name__ == "__main__":
    raise SystemExit(main())
