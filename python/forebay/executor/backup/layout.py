"""The contents of the folder of a backup."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from forebay._runtime_directory import open_private
from forebay.errors import ConfigError
from forebay.executor.backup.errors import explained

__all__ = [
    "ABOUT",
    "AUDIT_LOGS",
    "DATABASE",
    "FILES",
    "ITEMS",
    "JOURNAL",
    "KEY",
    "LOCK",
    "LOGS",
    "MANIFEST",
    "RESULTS",
    "about",
    "refuse_other",
    "write_about",
]

ABOUT, FILES = "backup.json", "files.txt"
"""Beside the folder of the application: what this is, and each file in the folders of results,
logs and items with its length."""

DATABASE, JOURNAL, RESULTS, LOGS = "requests.db", "journal", "results", "logs"
ITEMS = "items"
MANIFEST, KEY, AUDIT_LOGS = "manifest.json", "secret.key", ("audit.log", "audit.log.1")
LOCK = "lock"
"""In the folder of the application, as its server has them. The lock is made by a server alone."""


def write_about(partial: Path, told: dict[str, Any]) -> None:
    """Write what the backup is."""
    with open(partial / ABOUT, "w", opener=open_private) as file:
        json.dump({"schema": 1, **told}, file, indent=2)
        file.write("\n")


def about(directory: Path) -> dict[str, Any] | None:
    """What a backup says of itself; None: this is no backup.

    Raises:
        ConfigError: it says nothing that makes sense.
        OSError: it cannot be read.
    """
    path = directory / ABOUT
    try:
        told = json.loads(path.read_text())
        if not isinstance(told["name"], str) or "/" in told["name"]:
            raise ValueError("it has no name")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"{path} is damaged: {error}; take another backup, or remove the file to use the "
            "directory without it"
        ) from error
    return dict(told)


def refuse_other(state: Path) -> None:
    """Do not begin anew beside the backup of an application whose file had another path.

    Args:
        state: of the application that is to be served.

    Raises:
        ConfigError: the directory around it is a backup, and not one of this application.
    """
    try:
        if state.exists():
            return
        told = about(state.parent)
        if told is None or not (state.parent / told["name"]).is_dir():
            return
    except PermissionError:
        return  # nor can it be made there, which says why
    except OSError as error:
        raise explained(error, state.parent) from error
    raise ConfigError(
        f"{state.parent} is a backup of {told.get('file')}, and a server finds its folder by the "
        f"path of that file, which has changed; to serve its requests with this application: mv "
        f"{state.parent / told['name']} {state}"
    )
