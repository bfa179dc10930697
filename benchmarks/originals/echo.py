"""The echo script of the asyncio comm, its options as they were: `python -m benchmarks echo ...`.

Processes with so many connections each have their messages echoed, one request in flight on each
connection; printed are requests per second, microseconds of each and megabytes a second each way.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from benchmarks import machine
from benchmarks.claim import OWN, Contestant, Option
from benchmarks.runner import ContestantError, adopt_orphans, run_round
from benchmarks.transport.contestants import ROUND

WARM_UP_S = 0.3
COMMS = ("forebay", "forebay-native", "tornado", "asyncio")


@dataclass(frozen=True)
class Scene:
    """What is echoed, and by whom; the fields are the options of the command."""

    comm: str = "forebay"
    frames: int = 1
    frame_bytes: float = 1e4
    procs: int = 3
    concurrency: int = 4
    seconds: float = 5.0
    uvloop: bool = False
    tls: bool = False
    gil_hold_time: float = 0.0
    gil_release_time: float = 0.0

    @property
    def message(self) -> str:
        """The message as figures name it."""
        return f"{self.frames}x{self.frame_bytes:g}"

    def contestant(self) -> Contestant:
        """Who runs it.

        Raises:
            ValueError: the comm cannot do that.
        """
        if self.comm == "forebay-native" and self.tls:
            raise ValueError("native handlers are not served over TLS: --comm forebay")
        options: dict[str, Option] = {
            "clients": self.procs,
            "connections": self.concurrency,
            "seconds": self.seconds,
            "warm_up_s": WARM_UP_S,
        }
        if self.gil_hold_time:
            options |= {"hog": "inside", "hold_s": self.gil_hold_time}
            options["release_s"] = self.gil_release_time
        name, environment, flags, more = self._side()
        label = " ".join((self.comm, *(flag for flag in ("tls", "uvloop") if getattr(self, flag))))
        what = f"-f {self.frames} -b {self.frame_bytes:g} -p {self.procs} -c {self.concurrency}"
        held = f", GIL held {self.gil_hold_time:g} s" if self.gil_hold_time else ""
        return Contestant(
            f"{label}, {what}{held}",
            f"{ROUND}:echoes",
            environment,
            options | {"name": name} | more,
            flags=flags,
            asks=True,
        )

    def _side(self) -> tuple[str, str, tuple[str, ...], dict[str, Option]]:
        loop = "uvloop" if self.uvloop else "asyncio"
        if self.comm.startswith("forebay"):
            native = self.comm == "forebay-native"
            more: dict[str, Option] = {"scheme": "tls" if self.tls else "tcp", "native": native}
            return "forebay", OWN, (), more | ({"loop": loop} if self.uvloop else {})
        environment = "dask2023" if self.comm == "asyncio" else "main"
        # That comm asserts, on uvloop, that the transport is one of asyncio's classes.
        flags = ("-O",) if (self.comm, loop) == ("asyncio", "uvloop") else ()
        more = {"backend": self.comm, "loop": loop, "tls": self.tls}
        return "dask", environment, flags, more

    def line(self, figures: dict[str, float]) -> str:
        """The figures in the script's words."""
        rate = figures[f"{self.message}/rate"]
        each_way = rate * self.frames * self.frame_bytes / 1e6
        per_request = 1e6 / rate
        line = f"{rate:.1f} RPS, {per_request:.2f} us / request, {each_way:.1f} MB/s each way"
        if f"{self.message}/kept" in figures:
            line += f"; the thread that holds the GIL keeps {figures[f'{self.message}/kept']:.0%}"
        return line


def parse(arguments: list[str]) -> Scene:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks echo",
        description="Echo messages between processes, as the asyncio comm's own script did.",
        epilog="example: python -m benchmarks echo -b 1e3 -p 3 -c 4 --tls --comm tornado",
    )
    parser.add_argument("-f", "--frames", type=int, default=1, metavar="N")
    parser.add_argument("-b", "--bytes", type=float, default=1e4, dest="frame_bytes", metavar="N")
    parser.add_argument("-p", "--procs", type=int, default=3, metavar="N")
    parser.add_argument("-c", "--concurrency", type=int, default=4, metavar="N")
    parser.add_argument("-s", "--seconds", type=float, default=5.0, metavar="S")
    parser.add_argument("--uvloop", action="store_true", help="on uvloop, where it is ours too")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--gil-hold-time", type=float, default=0.0, metavar="S")
    parser.add_argument("--gil-release-time", type=float, default=0.0, metavar="S")
    parser.add_argument("--comm", choices=COMMS, default="forebay")
    scene = Scene(**vars(parser.parse_args(arguments)))
    try:
        scene.contestant()
    except ValueError as error:
        parser.error(str(error))
    return scene


def main(arguments: list[str]) -> int:
    """Run one scene and print its line."""
    scene = parse(arguments)
    adopt_orphans()
    contestant = scene.contestant()
    try:
        report = run_round(contestant, quick=False, wanted=[f"{scene.message}/rate"])
    except ContestantError as error:
        print(f"{contestant.name}: does not run: {error}")
        return 1
    print(f"{contestant.name} (load {machine.load():.2f})\n{scene.line(report['figures'])}")
    return 0
