"""The server of an experiment, which is started again and again."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.errors import ConfigError
from forebay.testing.experiment.served import Served, Setting

APP = """
import forebay

app = forebay.App("served")


@app.request()
def one() -> int:
    return 1
"""


def test_a_server_that_could_not_import_its_application_may_be_well_again(tmp_path: Path) -> None:
    """As after a fault that left it no descriptor: what it said then is of that time."""
    app = tmp_path / "mine.py"
    app.write_text("import nowhere_to_be_found\n")
    runtime = {"XDG_RUNTIME_DIR": str(tmp_path)}
    served = Served(Setting(str(app), tmp_path, tmp_path / "state", environment=runtime))
    try:
        with pytest.raises(ConfigError, match="nowhere_to_be_found"):
            served.start(lambda: None)
        served.kill()
        app.write_text(APP)
        served.start(lambda: None)
    finally:
        served.kill()
