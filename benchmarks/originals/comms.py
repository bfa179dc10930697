"""Dask's asyncio comms (PR 5450): the tables of the echo script, measured here in one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchmarks.claim import Contestant
from benchmarks.harness import Series
from benchmarks.originals.echo import Scene
from benchmarks.originals.original import PUBLISHED, Asked, Original, Table, failures, figure

SECONDS, QUICK_S = 1.0, 0.25
SIZES = ("1e3", "1e4", "1e5", "1e6", "1e7")
PEERS = {
    "asyncio, uvloop": Scene("asyncio", uvloop=True),
    "tornado, uvloop": Scene("tornado", uvloop=True),
}
OURS = {"forebay": Scene(), "forebay, uvloop": Scene(uvloop=True)}
WHO = {**PEERS, **OURS, "forebay, native handler": Scene("forebay-native")}
PUBLISHED_RPS = {
    "asyncio, uvloop": (21_230, 19_551, 11_347, 1_738, 150),
    "tornado, uvloop": (9_412, 8_996, 6_839, 1_581, 143),
    "asyncio, uvloop, TLS": (14_501, 13_126),
    "tornado, uvloop, TLS": (8_185, 7_404),
}
SCENES = {
    "-f 5 -b 1e6 -p 3 -c 4": Scene(frames=5, frame_bytes=1e6),
    "-b 1e6 -p 10 -c 2 --tls (workers that fetch)": Scene(
        frame_bytes=1e6, procs=10, concurrency=2, tls=True
    ),
    "-b 1e3 -p 10 -c 5 --tls (a scheduler)": Scene(
        frame_bytes=1e3, procs=10, concurrency=5, tls=True
    ),
}
GIL = {
    "1 client": Scene(frame_bytes=1e3, procs=1, concurrency=1, gil_hold_time=1.0),
    "6 clients": Scene(frame_bytes=1e3, procs=3, concurrency=2, gil_hold_time=1.0),
}
GIL |= {f"{name}, TLS": replace(scene, tls=True) for name, scene in GIL.items()}


def _made(scene: Scene, who: Scene) -> Contestant | None:
    asked = replace(scene, comm=who.comm, uvloop=who.uvloop, seconds=SECONDS)
    if asked.tls and asked.comm == "forebay-native":
        return None
    return replace(asked.contestant(), quick={"seconds": QUICK_S, "warm_up_s": 0.1})


def _rate(scene: Scene) -> str:
    return f"{scene.message}/rate"


def _echo(size: str, *, tls: bool) -> Scene:
    return Scene(frame_bytes=float(size), tls=tls)


def contestants() -> list[Asked]:
    """Everyone, and what is asked of each."""
    scenes = [_echo(size, tls=tls) for tls in (False, True) for size in SIZES]
    found: list[Asked] = []
    for scene in (*scenes, *SCENES.values(), *GIL.values()):
        for who in WHO.values():
            one = _made(scene, who)
            if one is not None:
                found.append((one, [_rate(scene)]))
    return found


def _cell(series: Mapping[str, Series], scene: Scene, who: Scene) -> str:
    one = _made(scene, who)
    return "-" if one is None else figure(series, one, _rate(scene))


def _gil_cell(series: Mapping[str, Series], scene: Scene, who: Scene) -> str:
    one = _made(scene, who)
    if one is None:
        return "-"
    kept = figure(series, one, f"{scene.message}/kept", ".0%")
    return f"{figure(series, one, _rate(scene))} ({kept})"


def _published(name: str) -> list[str]:
    values = PUBLISHED_RPS[name]
    return [f"{value:,}" for value in values] + ["-"] * (len(SIZES) - len(values))


def tables(series: Mapping[str, Series]) -> list[Table]:
    """RPS by size, plain and over TLS; the other scenes; the experiment with the GIL."""
    rates: list[Sequence[str]] = [(name, PUBLISHED, *_published(name)) for name in PUBLISHED_RPS]
    for tls in (False, True):
        for name, who in WHO.items():
            cells = [_cell(series, _echo(size, tls=tls), who) for size in SIZES]
            if set(cells) != {"-"}:
                rates.append((f"{name}{', TLS' if tls else ''}", "here", *cells))
    scenes = [
        (label, *(_cell(series, scene, who) for who in WHO.values()))
        for label, scene in SCENES.items()
    ]
    held = [
        (name, *(_gil_cell(series, scene, who) for scene in GIL.values()))
        for name, who in WHO.items()
    ]
    return [
        Table(
            "Comms: requests per second by bytes, `-p 3 -c 4`",
            [
                "asyncio is distributed 2023.11.0, the last with that comm; tornado the newest.",
                *failures(series),
            ],
            ("comm", "measured", *SIZES),
            rates,
        ),
        Table("Comms: the script's other scenes, RPS", [], ("options", *WHO), scenes),
        Table(
            "Comms: a thread of the server holds the GIL, RPS at 1e3",
            ["In brackets: the share of its free speed that the thread keeps."],
            ("comm", *GIL),
            held,
        ),
    ]


COMMS = Original("comms", contestants(), tables)
