"""The experiment of the verbs transport that Forebay's tensors come from, always as a 2 x 2.

One slot or 16; memory that is registered for each transfer or once. And vectored: 8 pulls in a
request. Everyone runs the same program with other options (crates/tensor/examples): workers are
connections of one thread of one process, servers those of a second; the sockets are real (Unix
stream sockets), and registration is io_uring's, which pins pages as a device's driver does.

`4 KiB/rate` is in tensors per second: 20 workers, 2 servers, 16 tensors of each a step, no latency.
`50x5 far/rate` is in steps per second: 50 workers, 5 servers, tensors of 4 KiB, a delay line of
8 ms one way and 400 ms of compute; `50x5 near/rate` is the same without either. These are run in
full without --quick.
"""

from __future__ import annotations

from typing import Final

from benchmarks.claim import Claim, Contestant, Option
from benchmarks.stopwatch import Figures
from benchmarks.tensor.load import SIZES, sizes
from benchmarks.tensor.programs import TRAFFIC, run

SMALL_BYTES = SIZES["4 KiB"]
TRAFFIC_BYTES = {"4 KiB": SMALL_BYTES, "16 KiB": 16 << 10, "64 KiB": 64 << 10}
SCALES: Final = {"50x5": (50, 5), "100x10": (100, 10), "200x10": (200, 10)}
FAR, NEAR = "far", "near"
DELAY_MS, COMPUTE_MS = 8, 400
STEP_S = 0.7
"""What the longest step of a scale takes with the delay line; 257 ms of it is for pulls."""


def traffic(
    *, wanted: list[str], slots: int, entries: int, registration: str, seconds: float
) -> Figures:
    """Run the program once for each size or scale that is wanted."""
    figures: Figures = {}
    mode = [f"slots={slots}", f"entries={entries}", f"registration={registration}"]
    for name in sizes(wanted):
        found = run(TRAFFIC, *mode, *_options(name, seconds))
        scale = name not in TRAFFIC_BYTES
        figures[f"{name}/rate"] = found["steps_per_s" if scale else "tensors_per_s"]
        figures[f"{name}/cpu"] = found["cpu_us_per_tensor"]
        figures[f"{name}/pull_ms"] = found["pull_ms"]
    return figures


def _options(name: str, seconds: float) -> list[str]:
    if name in TRAFFIC_BYTES:
        options = {"bytes": TRAFFIC_BYTES[name], **_times(seconds / 3, seconds)}
    else:
        scale, _, distance = name.partition(" ")
        workers, servers = SCALES[scale]
        options = {"workers": workers, "servers": servers, "bytes": SMALL_BYTES}
        if distance == FAR:
            options |= {"delay_ms": DELAY_MS, "compute_ms": COMPUTE_MS}
            options |= _times(2 * STEP_S, 2 * STEP_S + seconds)
        else:
            options |= _times(seconds / 3, seconds)
    return [f"{name}={value}" for name, value in options.items()]


def _times(warm_up_s: float, measured_s: float) -> dict[str, int]:
    return {"warm_up_ms": int(warm_up_s * 1e3), "measured_ms": int(measured_s * 1e3)}


def _mode(name: str, slots: int, registration: str, entries: int = 1) -> Contestant:
    options: dict[str, Option] = {
        "slots": slots,
        "entries": entries,
        "registration": registration,
        "seconds": 3.0,
    }
    function = "benchmarks.tensor.experiment:traffic"
    return Contestant(name, function, options=options, quick={"seconds": 1.0}, asks=True)


NEITHER = _mode("1 slot, registered each time", 1, "transfer")
STATIC = _mode("1 slot, registered once", 1, "static")
SLOTS = _mode("16 slots, registered each time", 16, "transfer")
BOTH = _mode("16 slots, registered once", 16, "static")
VECTORED = _mode("16 slots, registered once, 8 pulls a request", 16, "static", entries=8)
FRESH = _mode("16 slots, fresh memory each time", 16, "fresh")
GROWN = _mode("16 slots, an arena that grows", 16, "grown")
MODES = {"static": STATIC, "slots": SLOTS, "both": BOTH, "vectored": VECTORED}


def _row(name: str, ours: Contestant, peer: Contestant, shape: str, *, long: bool = False) -> Claim:
    unit = "tensors/s" if shape in TRAFFIC_BYTES else "steps/s"
    return Claim(
        *(f"tensor.{name}", ours, peer, f"{shape}/rate", unit), higher_is_better=True, long=long
    )


def _short(shape: str) -> str:
    return shape.replace(" KiB", "k")


CLAIMS = [
    *(
        _row(f"slots.{_short(shape)}.{name}_vs_neither", mode, NEITHER, shape)
        for shape in TRAFFIC_BYTES
        for name, mode in MODES.items()
    ),
    *(_row(f"slots.latency.{scale}", BOTH, STATIC, f"{scale} {FAR}") for scale in SCALES),
    _row("static_vs_per_transfer.16slots", BOTH, SLOTS, "4 KiB"),
    _row("arena.vs_fresh_memory", BOTH, FRESH, "4 KiB"),
    *(
        _row(f"scale.{scale}.{distance}.{name}", mode, NEITHER, f"{scale} {distance}", long=True)
        for scale in SCALES
        for distance in (NEAR, FAR)
        for name, mode in MODES.items()
    ),
]
