"""The contestants of the transport benchmarks, and how a row of theirs is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.claim import OWN, Claim, Contestant, Option

ROUND = "benchmarks.transport.round"
TIMES = {"seconds": 1.0, "warm_up_s": 0.2}
QUICK = {"seconds": 0.25, "warm_up_s": 0.1}
BULK_ROUNDS = 9


@dataclass(frozen=True)
class System:
    """A way to run a transport.

    Attributes:
        label: what the table calls it.
        side: its module, as `side` names it.
        options: what its `make` takes.
        environment: where it is installed.
        flags: what its interpreter needs.
    """

    label: str
    side: str
    options: Mapping[str, Option]
    environment: str = "main"
    flags: tuple[str, ...] = ()

    def contestant(
        self, what: str, function: str, *, quick_s: float = 0.25, **options: Option
    ) -> Contestant:
        """This system in a function, whose quick runs take so long per message."""
        return Contestant(
            f"{self.label}, {what}",
            function,
            self.environment,
            {"name": self.side, **self.options, **TIMES, **options},
            QUICK | {"seconds": quick_s},
            self.flags,
            asks=True,
        )

    def echo(self, clients: int, connections: int, **options: Option) -> Contestant:
        """Echoes from so many processes with so many connections each."""
        hog = options.get("hog")
        return self.contestant(
            f"p{clients}c{connections}" + (f", hog {hog}" if hog else ""),
            f"{ROUND}:echoes",
            quick_s=0.6 if hog else 0.25,  # beside one, a request can take tens of milliseconds
            clients=clients,
            connections=connections,
            **options,
        )


def ours(label: str, **options: Option) -> System:
    """Forebay, on its own loop unless `loop` names another."""
    return System(label, "forebay", options, OWN)


def dask(*, tls: bool) -> tuple[System, ...]:
    """Every comm of distributed; the best of them counts.

    That is tornado's of the newest release, and tornado's and asyncio's of 2023.11.0, the last that
    has it, each on both loops. On uvloop the asyncio comm runs without assertions alone, since it
    asserts that the transport is one of asyncio's classes.
    """
    kinds = (
        ("dask tornado", "main", "tornado"),
        ("dask 2023 tornado", "dask2023", "tornado"),
        ("dask 2023 asyncio", "dask2023", "asyncio"),
    )
    return tuple(
        System(
            " ".join((label, *(["tls"] if tls else []), *(["uvloop"] if loop == "uvloop" else []))),
            "dask",
            {"backend": backend, "loop": loop, "tls": tls},
            environment,
            ("-O",) if (backend, loop) == ("asyncio", "uvloop") else (),
        )
        for label, environment, backend in kinds
        for loop in ("asyncio", "uvloop")
    )


FOREBAY = ours("forebay", scheme="tcp")
FOREBAY_TLS = ours("forebay tls", scheme="tls")
DASK = dask(tls=False)
DASK_TLS = dask(tls=True)
TORNADO = tuple(system for system in DASK if system.options["backend"] == "tornado")
UVLOOP = System("uvloop BufferedProtocol", "uvloop", {})


def row(
    name: str,
    ours: Contestant,
    peers: Sequence[Contestant],
    message: str,
    *,
    unit: str = "requests/s",
    rounds_min: int = 0,
    long: bool = False,
) -> Claim:
    """A claim in requests per second, against the best of the peers."""
    first, *others = peers
    return Claim(
        *(f"transport.{name}", ours, first, f"{message}/rate", unit),
        higher_is_better=True,
        variants=tuple(others),
        rounds_min=rounds_min,
        long=long,
    )


def echo_row(
    name: str,
    ours: System,
    peers: Sequence[System],
    message: str,
    clients: int,
    connections: int,
    *,
    rounds_min: int = 0,
    long: bool = False,
    **options: Option,
) -> Claim:
    """A claim about echoes from so many processes with so many connections each."""
    return row(
        name,
        ours.echo(clients, connections, **options),
        [peer.echo(clients, connections, **options) for peer in peers],
        message,
        rounds_min=rounds_min,
        long=long,
    )
