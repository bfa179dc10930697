"""Gymnasium environments whose work is done by pooled services.

Needs the extra `gym`; nothing else in Forebay imports gymnasium.
"""

from __future__ import annotations

from ._environment import Acquire, ServiceEnv

__all__ = ["Acquire", "ServiceEnv"]
