"""What a search found, as data that travels and lasts."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Found", "describe"]

_FLAGS_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Found:
    """The outcome of the search of one program.

    Attributes:
        program: its name.
        base_bytes: its size at -Os; 0 where not even that could be built.
        best_bytes: the least size of a program that passed its self-check.
        flags: those of the best, -Os first.
        trials: how many were made.
        improved: the trials that found something smaller, as (number, bytes); -Os comes first.
        outcomes: how many trials ended in which way; "lost" counts those without a result.
        cached: trials that were answered from a cache.
        losses: why services were lost.
    """

    program: str
    base_bytes: int
    best_bytes: int
    flags: list[str]
    trials: int
    improved: list[tuple[int, int]]
    outcomes: dict[str, int]
    cached: int
    losses: list[str] = field(default_factory=list)

    @property
    def caught(self) -> int:
        """Trials that gcc refused, that crashed or hung, or whose program was wrong."""
        return self.trials - self.outcomes.get("good", 0) - self.outcomes.get("lost", 0)

    def table(self) -> str:
        """The outcome for reading, a fact a line."""
        shown = [flag.removeprefix("--param=") for flag in self.flags[1:]]
        more = len(shown) - _FLAGS_SHOWN
        flags = " ".join(shown[:_FLAGS_SHOWN]) + (f" and {more} more" if more > 0 else "")
        rows = {
            "program": self.program,
            "-Os": f"{self.base_bytes} B of code, constants and data",
            "best": describe(self.base_bytes, self.best_bytes).removeprefix("best").strip(),
            "flags": flags or "none beside -Os",
            "trials": ", ".join(f"{count} {what}" for what, count in sorted(self.outcomes.items())),
        }
        return "\n".join(f"{name:<8} {told}" for name, told in rows.items())


def describe(base_bytes: int, best_bytes: int) -> str:
    """Say in a few words how far a search has come."""
    if base_bytes == 0:
        return ""
    saved = 100 * (1 - best_bytes / base_bytes)
    return f"best {best_bytes:>5} B of {base_bytes:>5} ({saved:.1f} % saved)"
