"""The commands of the guide to servers elsewhere run, and print what the page says."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guides" / "remote.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ID = re.compile(r"\b[0-9a-z]{12}\b(?= not| succeeded)")
PORT = "8443"
"""On the page."""


@pytest.mark.needs("openssl")
def test_the_commands_of_the_guide_print_what_it_says(tmp_path: Path) -> None:
    """A newcomer who copies them gets the answers of the page, ids apart."""
    blocks = BLOCK.findall(PAGE.read_text())
    (source,) = [text for kind, text in blocks if kind == "python"]
    (tmp_path / "squares.py").write_text(source)
    certificate, serve, *commands = [text for kind, text in blocks if kind == "sh"]
    outputs = [text for kind, text in blocks if kind == "text"]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, words in {"forebay": "-m forebay.cli", "python": ""}.items():
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        program.chmod(0o755)
    paths = [str(ROOT / "python"), str(ROOT / "clients/python"), os.environ.get("PYTHONPATH")]
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "FOREBAY_STATE_DIR": str(tmp_path / "state"),
        "XDG_RUNTIME_DIR": str(tmp_path / "r"),
    }
    subprocess.run(["bash", "-c", certificate], cwd=tmp_path, check=True)
    command = [*serve.replace(PORT, port).split(), "--json"]
    with subprocess.Popen(
        [str(programs / "forebay"), *command[1:]],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
    ) as server:
        try:
            assert server.stdout is not None
            assert any(b'"http"' in line for line in server.stdout)
            script = "set -eo pipefail\n" + "echo =====\n".join(commands)
            done = subprocess.run(
                ["bash", "-c", script.replace(f":{PORT}", f":{port}")],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=50,
            )
        finally:
            server.terminate()
    assert done.returncode == 0, done.stderr
    printed = [told.strip() for told in done.stdout.split("=====\n") if told.strip()]
    assert [ID.sub("ID", told).split() for told in printed] == [told.split() for told in outputs]
