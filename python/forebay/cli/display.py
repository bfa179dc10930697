"""Which display shows progress: bars on a terminal, lines elsewhere, JSON for programs."""

from __future__ import annotations

import argparse
import sys

from forebay.cli.output import is_terminal
from forebay.cli.progress import Display, JsonDisplay, LineDisplay

__all__ = ["display"]


def display(options: argparse.Namespace) -> Display:
    """What `--progress` and `--quiet` ask for; bars need a terminal and the package rich."""
    choice = options.progress
    if options.quiet or choice == "none":
        return Display()
    if choice == "json":
        return JsonDisplay()
    if choice == "auto" and is_terminal(sys.stderr):
        try:
            from forebay.cli.bars import BarDisplay
        except ImportError:
            return LineDisplay()
        return BarDisplay(options.color)
    return LineDisplay()
