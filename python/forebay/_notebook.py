"""Whether this program is the kernel of a notebook, and HTML in the output of a cell.

IPython is imported only where the program has imported it itself.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

__all__ = ["Output", "is_notebook"]


def is_notebook() -> bool:
    """Whether cells of a notebook run in this process."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class Output:
    """A piece of the output of the cell that runs, which is replaced in place.

    Args:
        markup: the HTML that it begins with.
        text: the same for a front end without HTML.
    """

    __slots__ = ("_handle",)

    def __init__(self, markup: str, text: str) -> None:
        shown = importlib.import_module("IPython.display")  # loaded by every kernel
        self._handle: Any = shown.display(_bundle(markup, text), raw=True, display_id=True)

    def replace(self, markup: str, text: str) -> None:
        """Show this instead, also in a notebook that was saved meanwhile."""
        self._handle.update(_bundle(markup, text), raw=True)


def _bundle(markup: str, text: str) -> dict[str, str]:
    return {"text/html": markup, "text/plain": text}
