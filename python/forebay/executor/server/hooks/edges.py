"""Tells when a limit has come near: once, and again only after it was left far enough behind."""

from __future__ import annotations

from typing import Final

from forebay._hook_config import HookConfig

APART_S: Final = 60.0
"""At least so long between two events of one kind for one hook."""
BACK: Final = 0.1
"""Of a limit: a value must fall by so much below the threshold."""
ROOM: Final = 1.25
"""Free bytes must be so many times the threshold."""


class Edges:
    """What is near its limit, by hook and kind."""

    def __init__(self) -> None:
        self._near: set[tuple[str, str]] = set()
        self._told_at: dict[tuple[str, str], float] = {}

    def look(self, hook: HookConfig, kind: str, value: int, limit: int, now_s: float) -> bool:
        """Whether a hook is to be called for a value now.

        Args:
            hook: which says what near is.
            kind: "memory", "queue" or "disk".
            value: what is used, or is free of a disk.
            limit: what there is.
            now_s: of a clock that only goes on.
        """
        key = (hook.name, kind)
        if kind == "disk":
            is_near, is_far = value < hook.free, value > ROOM * hook.free
        else:
            is_near, is_far = value > hook.above * limit, value < (hook.above - BACK) * limit
        if is_far:
            self._near.discard(key)
        if not is_near or key in self._near:
            return False
        if now_s - self._told_at.get(key, -APART_S) < APART_S:
            return False  # it is looked at again
        self._near.add(key)
        self._told_at[key] = now_s
        return True
