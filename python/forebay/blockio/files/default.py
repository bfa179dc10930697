"""The queue that the whole process shares, made on first use."""

from __future__ import annotations

from forebay.blockio.files.queue import Queue

__all__ = ["default_queue", "set_default_queue"]

# Changed by single calls of a dict, which need no lock, and so none that a fork could find held.
_default: dict[str, Queue] = {}


def default_queue() -> Queue:
    """The process-wide queue: what `set_default_queue` gave, or one with the configured settings.

    A closed one is replaced. In a forked child it is the same queue, with rings of the child's own.

    Raises:
        ConfigError: a setting of the environment or of `forebay.toml` is wrong.

    Threads: any.
    """
    queue = _default.get("queue")
    if queue is not None and not queue.closed:
        return queue
    if queue is not None:
        _default.pop("queue", None)
    return _default.setdefault("queue", Queue())  # one that lost the race has made nothing yet


def set_default_queue(queue: Queue | None) -> None:
    """Use `queue` for files that are opened from now on without one.

    None: make a new one on next use. Closes nothing, and changes no open file.
    """
    if queue is None:
        _default.pop("queue", None)
    else:
        _default["queue"] = queue
