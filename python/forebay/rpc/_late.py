"""What is raised when no reply came in time."""

from __future__ import annotations

from forebay.errors import DeadlineError

__all__ = ["no_reply"]


def no_reply(name: str, timeout: float | None) -> DeadlineError:
    """For a call on the channel `name` that had `timeout` seconds."""
    return DeadlineError(
        f"no reply from {name} within {timeout} s; give a longer timeout= where the method needs"
        " more, or see whether the process hangs",
        timeout=timeout,
    )
