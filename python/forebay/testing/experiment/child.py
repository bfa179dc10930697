"""What the process of the experiment's server does before it is `forebay serve`.

It ends when the experiment does, however that ends, and enters the experiment's control group.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

from forebay._package import PATH_ENTRY

__all__ = ["command"]

_PR_SET_PDEATHSIG: Final = 1

PROGRAM: Final = (
    f"import sys; sys.path.insert(0, {PATH_ENTRY!r});"
    " from forebay.testing.experiment.child import prepare; prepare();"
    " from forebay.cli import main; sys.exit(main(sys.argv[1:]))"
)


def command(arguments: list[str], group: str) -> list[str]:
    """The command line of such a process.

    Args:
        arguments: of the command `forebay`.
        group: the file by which a control group is entered; "": none.
    """
    return [sys.executable, "-P", "-c", PROGRAM, str(os.getpid()), group, *arguments]


def prepare() -> None:
    """Prepare this process, and leave the arguments of the command in `sys.argv`."""
    experiment, group, *arguments = sys.argv[1:]
    # SIGKILL: it may be stopped when the experiment dies. Its keepers end what is below it.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(experiment):
        sys.exit(1)
    if group:
        with open(group, "w") as file:
            file.write(str(os.getpid()))
    sys.argv = ["forebay", *arguments]
