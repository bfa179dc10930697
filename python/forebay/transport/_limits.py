"""Limits of one connection."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from forebay.errors import ConfigError

STRANGER_TIMEOUT_S = 30.0
"""Seconds in which a peer that nobody vouches for must move on; as of native listeners."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one end takes and holds; both ends apply the smaller of their first two.

    Attributes:
        message_bytes_max: largest message, all frames together; refused before memory is obtained.
        frames_max: most frames of a message.
        inbox_bytes_max: received and not taken; reading stops there and goes on at half.
        outbox_bytes_high: queued bytes above which `send` waits.
        outbox_bytes_low: queued bytes at which it goes on.
        stall_timeout: seconds in which the peer must move on with half a message, or take output
            that waits for it, by 32 KiB or to its end; then the connection ends with BrokenError.
            For event loops and native listeners; threads give `timeout`. `math.inf`: it may stand
            still for ever. None: 30 s at native listeners, and for strangers, who need neither
            token nor certificate from another machine (`unprotected=True`); for ever otherwise. A
            peer that is known may compute for minutes in the middle of a message, and a dead
            machine is found by the kernel within 30 s.
    """

    message_bytes_max: int = 1 << 30
    frames_max: int = 65_535
    inbox_bytes_max: int = 4 << 20
    outbox_bytes_high: int = 512 << 10
    outbox_bytes_low: int = 128 << 10
    stall_timeout: float | None = None

    def __post_init__(self) -> None:
        if self.stall_timeout is not None and not self.stall_timeout > 0:
            raise ConfigError(
                f"stall_timeout is {self.stall_timeout}; give seconds above 0, math.inf for ever"
            )

    def as_dict(self) -> dict[str, int]:
        """Those of the connection itself, by name."""
        limits = asdict(self)
        del limits["stall_timeout"]
        return limits

    def stall_timeout_of(self, *, known: bool) -> float:
        """Seconds for a peer that somebody vouches for, or for a stranger."""
        if self.stall_timeout is not None:
            return self.stall_timeout
        return math.inf if known else STRANGER_TIMEOUT_S
