"""Where this package is installed."""

from __future__ import annotations

import os
from typing import Final

__all__ = ["PACKAGE", "PATH_ENTRY"]

PACKAGE: Final = os.path.dirname(os.path.abspath(__file__))
"""The folder of `forebay`, without a separator at its end."""

PATH_ENTRY: Final = os.path.dirname(PACKAGE)
"""What `sys.path` needs for `import forebay`."""
