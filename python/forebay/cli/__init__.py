"""The `forebay` command: one module for each of its commands."""

from __future__ import annotations

from forebay.cli.command_line import main

__all__ = ["main"]
