"""The state directory that the options of a command name."""

from __future__ import annotations

from pathlib import Path

from forebay.cli.exit_codes import NoSuchThingError

__all__ = ["state_of"]


def state_of(app: str | None, state_dir: str | None = None) -> Path:
    """The state directory of the server that is meant; it need not run.

    Args:
        app: TARGET of its application; None: that of the configuration, else of the server that
            was started last.
        state_dir: where the state of servers lies; None: as configured.

    Raises:
        NoSuchThingError: nothing names an application, and no server runs.
    """
    from forebay.configuration import find_configuration
    from forebay.executor._internal import home_of, newest

    configuration = find_configuration({"app": app, "state_dir": state_dir})
    named = configuration.value("app")
    if named is not None:
        return home_of(named, configuration).paths.state
    found = newest()
    if found is None:
        raise NoSuchThingError(
            "no server runs and nothing names an application; give --app FILE.py, or set "
            "FOREBAY_APP"
        )
    return Path(found.state)
