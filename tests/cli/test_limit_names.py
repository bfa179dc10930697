"""The limit that a refusal names is the setting that raises it."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.test_real_server import Shell, shell

__all__ = ["shell"]


def refusal(shell: Shell, *words: str) -> dict[str, Any]:
    """What a submission is refused with."""
    done = shell(*words, "--json")
    assert done.code == 5, done
    error: dict[str, Any] = json.loads(done.err.splitlines()[-1])["error"]
    return error


def variable(limit: str) -> str:
    return f"FOREBAY_EXECUTOR_{limit.upper()}"


def test_arguments_are_refused_by_the_name_of_their_setting(shell: Shell) -> None:
    """Set as it is named, it lets them in."""
    shell.environment["FOREBAY_EXECUTOR_MAX_ARGUMENT_BYTES"] = "100B"
    words = ("submit", "scene.py:fail", "--text", "x" * 500)
    limit = refusal(shell, *words)["limit"]
    assert shell("stop").code == 0
    shell.environment |= {variable(limit): "1000B"}
    done = shell(*words)
    assert done.code == 0, done
    assert "no setting" not in shell("config").err


def test_a_log_that_was_cut_names_the_setting_that_keeps_more(shell: Shell) -> None:
    """What is missing was wanted by somebody."""
    shell.environment["FOREBAY_EXECUTOR_MAX_LOG_BYTES"] = "1MiB"
    application = shell.application.read_text()
    shell.application.write_text(
        application.replace('print("thinking of", number)', 'print("x" * 3_000_000)')
    )
    assert shell("run", "--quiet", "scene.py:answer").code == 0
    cut = shell("logs", "@last").out
    assert "bytes of output were given up here, see max_log_bytes" in cut
    assert shell("stop").code == 0
    shell.environment[variable("max_log_bytes")] = "10MB"
    assert shell("run", "--quiet", "scene.py:answer").code == 0
    assert len(shell("logs", "@last").out) > 3_000_000
