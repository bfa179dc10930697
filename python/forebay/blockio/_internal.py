"""What other packages of Forebay use of this one, but its users do not.

Names are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._lazy import lazy

if TYPE_CHECKING:
    from forebay.blockio.records.inspect import inspect as inspect
    from forebay.blockio.records.inspect import verify as verify

__getattr__, __dir__ = lazy(__name__, {"records.inspect": ("inspect", "verify")})
