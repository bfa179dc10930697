"""numpy, without which there are neither record files nor tensors."""

from __future__ import annotations

from typing import Any, TypeAlias

from forebay.errors import ConfigError

try:
    import numpy as np
except ModuleNotFoundError as error:
    raise ConfigError(
        "record files and tensors need numpy, which is not installed; pip install numpy"
    ) from error

__all__ = ["Array", "np"]

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
