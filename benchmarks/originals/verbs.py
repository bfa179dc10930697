"""TensorFlow's optimised verbs transport: the gain by scale over one buffer and registration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from benchmarks.harness import Series
from benchmarks.originals.original import PUBLISHED, Original, Table, failures, trimmed_mean
from benchmarks.tensor.experiment import FAR, GROWN, MODES, NEAR, NEITHER, SCALES
from benchmarks.tensor.programs import TRAFFIC, build, forget

PUBLISHED_GAIN = {"50x5": "about 0", "100x10": "+24.96 %", "200x10": "+47.94 %"}
LABELS = {
    "slots": "slots alone",
    "static": "registration alone",
    "both": "both",
    "vectored": "both, 8 pulls a request",
    "grown": "slots, an arena that grows by registered chunks of 1 MiB",
}
MODE = {**MODES, "grown": GROWN}
ROUNDS = 5
LINES = {
    NEAR: "without an emulated line",
    FAR: "with an emulated line of 8 ms and 400 ms of compute",
}
FIGURES = [f"{scale} {line}/rate" for scale in SCALES for line in LINES]


def _gain(series: Mapping[str, Series], mode: str, name: str) -> str:
    ours, base = series[MODE[mode].name].values(name), series[NEITHER.name].values(name)
    if not ours or not base:
        return "-"
    trimmed = trimmed_mean(ours) / trimmed_mean(base) - 1
    median = series[MODE[mode].name].median(name) / series[NEITHER.name].median(name) - 1
    return f"{trimmed:+.1%} ({median:+.1%})"


@contextmanager
def around() -> Iterator[None]:
    """The program that everyone runs."""
    build([TRAFFIC])
    try:
        yield
    finally:
        forget()


def tables(series: Mapping[str, Series]) -> list[Table]:
    """The gain of each mode at each scale, near and far."""
    return [
        Table(
            f"Verbs: gain by scale, {words}",
            [
                "Gain in steps per second over one slot and a registration for each transfer.",
                "A mean without the fastest and the slowest round; in brackets the median.",
                "Registration is io_uring's, over Unix sockets: the machine has no device.",
                *failures(series),
            ],
            ("workers", "servers", PUBLISHED, *(LABELS[mode] for mode in LABELS)),
            [
                (
                    *(str(number) for number in SCALES[scale]),
                    PUBLISHED_GAIN[scale],
                    *(_gain(series, mode, f"{scale} {line}/rate") for mode in LABELS),
                )
                for scale in SCALES
            ],
        )
        for line, words in LINES.items()
    ]


VERBS = Original(
    "verbs",
    [(one, FIGURES) for one in (NEITHER, *(MODE[mode] for mode in LABELS))],
    tables,
    around=around,
    rounds_min=ROUNDS,
)
