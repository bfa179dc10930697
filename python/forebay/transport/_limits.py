"""Limits of one connection."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from forebay.errors import ConfigError

STRANGER_TIMEOUT_S = 30.0
"""Seconds in which a peer that nobody vouches for must move on; as of native listeners."""


FRAMES_MAX = 65_535
_LEAST = {
    "message_bytes_max": 1,
    "frames_max": 1,
    "inbox_bytes_max": 1,
    "outbox_bytes_high": 0,
    "outbox_bytes_low": 0,
    "outbox_bytes_max": 1,
}


@dataclass(frozen=True, slots=True)
class Limits:
    """What one end takes and holds; both ends apply the smaller of their first two.

    Attributes:
        message_bytes_max: largest message, all frames together; refused before memory is obtained.
        frames_max: most frames of a message.
        inbox_bytes_max: received and not taken; reading stops there and goes on at half.
        outbox_bytes_high: queued bytes above which `send` waits.
        outbox_bytes_low: queued bytes at which it goes on.
        outbox_bytes_max: queued bytes at which `send` raises LimitError: for senders that do not
            wait for the message before, as tasks that are started faster than the peer reads.
        stall_timeout: seconds in which the peer must move on with half a message, or take output
            that waits for it, by 32 KiB or to its end; then the connection ends with BrokenError.
            For event loops and native listeners; threads give `timeout`. `math.inf`: it may stand
            still for ever. None: 30 s in native handlers, and for strangers, who need neither
            token nor certificate from another machine (`unprotected=True`); for ever otherwise. A
            peer that is known may compute for minutes in the middle of a message, and a dead
            machine is found by the kernel within 30 s.
    """

    message_bytes_max: int = 1 << 30
    frames_max: int = FRAMES_MAX
    inbox_bytes_max: int = 4 << 20
    outbox_bytes_high: int = 512 << 10
    outbox_bytes_low: int = 128 << 10
    outbox_bytes_max: int = 1 << 30
    stall_timeout: float | None = None

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value < least:
                raise ConfigError(f"{name} is {value}; it is {least} or more")
        if self.frames_max > FRAMES_MAX:
            raise ConfigError(f"frames_max is {self.frames_max}; it is {FRAMES_MAX} or less")
        if self.outbox_bytes_low > self.outbox_bytes_high:
            raise ConfigError(
                f"outbox_bytes_low is {self.outbox_bytes_low}, above outbox_bytes_high, which is"
                f" {self.outbox_bytes_high}; give both"
            )
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
