"""Limits of one connection."""

from __future__ import annotations

import math
from dataclasses import dataclass

from forebay.errors import ConfigError

STRANGER_TIMEOUT_S = 30.0
"""Seconds in which an unauthenticated peer must move on; as of native listeners."""


FRAMES_MAX = 65_535
_LEAST = {
    "max_message_bytes": 1,
    "max_frames": 1,
    "max_inbox_bytes": 1,
    "outbox_bytes_high": 0,
    "outbox_bytes_low": 0,
    "max_outbox_bytes": 1,
}


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What one end takes and holds; both ends apply the smaller of their first two.

    Attributes:
        max_message_bytes: largest message, all frames together; refused before memory is obtained.
        max_frames: most frames of a message.
        max_inbox_bytes: received and not taken; reading stops there and goes on at half.
        outbox_bytes_high: queued bytes above which `send` waits.
        outbox_bytes_low: queued bytes at which it goes on.
        max_outbox_bytes: queued bytes at which `send` raises LimitError: for senders that do not
            wait for the message before, as tasks that are started faster than the peer reads.
        stall_timeout: seconds in which the peer must move on with half a message, or take output
            that waits for it, by 32 KiB or to its end; then the connection ends with BrokenError.
            For event loops and native listeners; threads give `timeout`. `math.inf`: it may stall
            without end. None: 30 s in native handlers, and for a peer on another machine that needs
            neither token nor certificate (`unprotected=True`); no limit otherwise. A peer that is
            known may compute for minutes in the middle of a message, and the kernel finds a dead
            machine within 30 s.
    """

    max_message_bytes: int = 1 << 30
    max_frames: int = FRAMES_MAX
    max_inbox_bytes: int = 4 << 20
    outbox_bytes_high: int = 512 << 10
    outbox_bytes_low: int = 128 << 10
    max_outbox_bytes: int = 1 << 30
    stall_timeout: float | None = None

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value < least:
                raise ConfigError(f"{name} is {value}; it is {least} or more")
        if self.max_frames > FRAMES_MAX:
            raise ConfigError(f"max_frames is {self.max_frames}; it is {FRAMES_MAX} or less")
        if self.outbox_bytes_low > self.outbox_bytes_high:
            raise ConfigError(
                f"outbox_bytes_low is {self.outbox_bytes_low}, above outbox_bytes_high, which is"
                f" {self.outbox_bytes_high}; give both"
            )
        if self.stall_timeout is not None and not self.stall_timeout > 0:
            raise ConfigError(
                f"stall_timeout is {self.stall_timeout}; give seconds above 0, or math.inf"
            )

    def of_connection(self) -> dict[str, int]:
        """Those that the connection itself applies, by the core's names."""
        return {
            "message_bytes_max": self.max_message_bytes,
            "frames_max": self.max_frames,
            "inbox_bytes_max": self.max_inbox_bytes,
            "outbox_bytes_high": self.outbox_bytes_high,
            "outbox_bytes_low": self.outbox_bytes_low,
            "outbox_bytes_max": self.max_outbox_bytes,
        }

    def stall_timeout_of(self, *, known: bool) -> float:
        """Seconds for a peer that is known, or for an unauthenticated one."""
        if self.stall_timeout is not None:
            return self.stall_timeout
        return math.inf if known else STRANGER_TIMEOUT_S
