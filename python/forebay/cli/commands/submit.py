"""`forebay submit`: leave a request to the server."""

from __future__ import annotations

import argparse
from typing import Any

from forebay.cli.session import session
from forebay.cli.submission import add_submission, say_id, submit, submitting

EXAMPLES = """\
  forebay submit launch --name job-1          prints the id, once the request is on disk
  forebay submit digits.py:classify --index 7
  id=$(forebay submit launch --name job-1); forebay wait $id
  forebay submit report --after $id --delay 5min"""


def add(commands: Any) -> None:
    """Add the command to the command line."""
    add_submission(
        commands,
        "submit",
        submitting,
        run,
        description="Submit a request and print its id alone, for scripts.",
        examples=EXAMPLES,
    )


def run(options: argparse.Namespace) -> int:
    """Submit, and print the id when the request is on disk."""
    with session(options, start=not options.no_start) as client:
        request, _ = submit(client, options, "submit", submitting)
        say_id(request, options)
    return 0
