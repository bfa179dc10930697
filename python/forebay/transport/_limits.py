"""Limits of one connection."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What one end takes and holds; both ends apply the smaller of their first two.

    Attributes:
        message_bytes_max: largest message, all frames together; refused before memory is obtained.
        frames_max: most frames of a message.
        inbox_bytes_max: received and not taken; reading stops there and goes on at half.
        outbox_bytes_high: queued bytes above which `send` waits.
        outbox_bytes_low: queued bytes at which it goes on.
    """

    message_bytes_max: int = 1 << 30
    frames_max: int = 65_535
    inbox_bytes_max: int = 4 << 20
    outbox_bytes_high: int = 512 << 10
    outbox_bytes_low: int = 128 << 10

    def as_dict(self) -> dict[str, int]:
        """By name."""
        return asdict(self)
