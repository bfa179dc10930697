"""What is raised for a call that gets no answer."""

from __future__ import annotations

from forebay.errors import ClosedError, DeadlineError

__all__ = ["client_closed", "no_end", "no_reply"]


def no_reply(name: str, timeout: float | None) -> DeadlineError:
    """For a call on the channel `name` that had `timeout` seconds."""
    return DeadlineError(
        f"no reply from {name} within {timeout} s; give a longer timeout= where the method needs"
        " more, or see whether the process hangs",
        timeout=timeout,
    )


def no_end(name: str, timeout: float | None) -> DeadlineError:
    """For a stream on the channel `name` that had `timeout` seconds."""
    return DeadlineError(f"the stream of {name} did not end within {timeout} s", timeout=timeout)


def client_closed(url: str) -> ClosedError:
    """For a call by a client of `url` that its user has closed."""
    return ClosedError(f"the client of {url} is closed; make a new one")
