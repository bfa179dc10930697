"""What a benchmark claims: which two contestants, and which figure of theirs is compared."""

from __future__ import annotations

from dataclasses import dataclass, field

OWN = ""  # the environment of the harness itself


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
    """

    name: str
    function: str
    environment: str = OWN
    options: dict[str, int] = field(default_factory=dict)
    quick: dict[str, int] = field(default_factory=dict)

    def options_for(self, *, quick: bool) -> dict[str, int]:
        """The keyword arguments of one round."""
        return self.options | (self.quick if quick else {})


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
    """

    name: str
    ours: Contestant
    peer: Contestant
    figure: str
    unit: str
    higher_is_better: bool = False

    def ratio(self, ours: float, peer: float) -> float:
        """How many times better ours is; above 1 means better, whatever the unit."""
        return ours / peer if self.higher_is_better else peer / ours
