"""What a benchmark claims: which two contestants, and which figure of theirs is compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

OWN = ""  # the environment of the harness itself
Option = int | float | str


@dataclass(frozen=True)
class Contestant:
    """One side of a comparison: a function that is run in a fresh process every round.

    Attributes:
        name: what the table shows, unique in its system.
        function: `module:function` that takes the options and returns a dict of figures.
        environment: `OWN`, or an environment of peers.toml.
        options: keyword arguments of the function; the same ones in a `--quick` run, changed by
            `quick`.
        quick: options that a `--quick` run overrides.
        flags: what its interpreter is started with.
        asks: whether the function takes `wanted`, the list of those figures that claims compare,
            and measures these alone.
    """

    name: str
    function: str
    environment: str = OWN
    options: Mapping[str, Option] = field(default_factory=dict)
    quick: Mapping[str, Option] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    asks: bool = False

    def options_for(self, *, quick: bool) -> dict[str, Option]:
        """The keyword arguments of one round."""
        return {**self.options, **(self.quick if quick else {})}


@dataclass(frozen=True)
class Claim:
    """One row: ours against a peer's, in one figure.

    Attributes:
        name: as in the claims file, `system.subject.vs_peer`.
        ours: our contestant.
        peer: the other one.
        figure: key of the compared value in what both return.
        unit: of that value.
        higher_is_better: whether more of it is better.
        variants: further ways to run the peer; the best of it and them is compared.
        rounds_min: how many rounds it needs, where that is more than the run has.
        optional: whether a machine may lack what it needs; a row without a ratio is no failure.
        long: whether a `--quick` run leaves it out, unless it is asked for by name.
        note: what a reader of the row must know, printed below the table.
        beside: others that run in the same rounds, and are shown, but not compared.
    """

    name: str
    ours: Contestant
    peer: Contestant
    figure: str
    unit: str
    higher_is_better: bool = False
    variants: tuple[Contestant, ...] = ()
    rounds_min: int = 0
    optional: bool = False
    long: bool = False
    note: str = ""
    beside: tuple[Contestant, ...] = ()

    @property
    def peers(self) -> tuple[Contestant, ...]:
        """Everyone whom ours is compared with."""
        return (self.peer, *self.variants)

    def ratio(self, ours: float, peer: float) -> float:
        """How many times better ours is; above 1 means better, whatever the unit."""
        return ours / peer if self.higher_is_better else peer / ours
