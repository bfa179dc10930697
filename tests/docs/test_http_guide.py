"""The commands of the guide to HTTP run, and print what the page says that they print."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guides" / "http.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ID = re.compile(r'"id":"[0-9a-z]{12}"')
PORT = "8000"
"""On the page."""


def blocks() -> list[tuple[str, str]]:
    """The blocks of the page, with their language."""
    return BLOCK.findall(PAGE.read_text())


def script(commands: list[str]) -> str:
    """The commands of the page, each block followed by a line that tells it from the next."""
    return "set -eo pipefail\n" + "".join(f"{one}echo =====\n" for one in commands)


@pytest.mark.needs("curl")
def test_the_commands_of_the_guide_print_what_it_says(tmp_path: Path) -> None:
    """A newcomer who copies them gets the answers of the page, ids apart."""
    (source,) = [text for kind, text in blocks() if kind == "python"]
    (tmp_path / "squares.py").write_text(source)
    serve, *commands = [text for kind, text in blocks() if kind == "sh"]
    outputs = [text for kind, text in blocks() if kind in ("json", "text")]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    (tmp_path / "bin").mkdir()
    forebay = tmp_path / "bin" / "forebay"
    forebay.write_text(f'#!/bin/sh\nexec {sys.executable} -m forebay.cli "$@"\n')
    forebay.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{forebay.parent}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(
            filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")])
        ),
        "FOREBAY_STATE_DIR": str(tmp_path / "state"),
        "XDG_RUNTIME_DIR": str(tmp_path / "r"),
    }
    command = [*serve.replace(PORT, port).split(), "--json"]
    with subprocess.Popen(
        [str(forebay), *command[1:]], cwd=tmp_path, env=environment, stdout=subprocess.PIPE
    ) as server:
        try:
            assert server.stdout is not None
            assert any(b'"http"' in line for line in server.stdout)
            done = subprocess.run(
                ["bash", "-c", script(commands).replace(f":{PORT}", f":{port}")],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=50,
                check=False,
            )
        finally:
            server.terminate()
    assert done.returncode == 0, done.stderr
    printed = [told.strip() for told in done.stdout.split("=====\n") if told.strip()]
    assert [ID.sub("", told).split() for told in printed] == [
        ID.sub("", told).split() for told in outputs
    ]
