"""`forebay serve --detach`: a server that outlives the command, which ends once that serves."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import Final

from forebay._package import PATH_ENTRY
from forebay.cli.exit_codes import code_of_signal

OPTION: Final = "--detach"

READY: Final = b"+"

PIPE: Final = "FOREBAY_READY_FD"
"""The variable that names the write end of the pipe to the command; it is no setting."""


class Starter:
    """The command that has started this server and waits for it, where there is one."""

    def __init__(self, pipe: int | None) -> None:
        self._pipe = pipe

    @classmethod
    def take(cls) -> Starter:
        """The one that the environment names; the variable is removed."""
        named = os.environ.pop(PIPE, None)
        if named is None:
            return cls(None)
        os.set_inheritable(int(named), False)
        return cls(int(named))

    def ready(self) -> None:
        """Tell it that this server serves; it ends. Once."""
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            with contextlib.suppress(OSError):  # it was killed meanwhile
                os.write(pipe, READY)
            os.close(pipe)


def detach(arguments: list[str]) -> int:
    """Start a server in a session of its own, and wait until it serves or has failed.

    Args:
        arguments: of the command, without the program's name.

    Returns:
        The exit code: 0 once it serves.
    """
    program = (
        f"import sys; sys.path.insert(0, {PATH_ENTRY!r}); from forebay.cli import main;"
        " sys.exit(main())"
    )
    given = [argument for argument in arguments if argument != OPTION]
    read, write = os.pipe2(os.O_CLOEXEC)
    try:
        server = subprocess.Popen(
            [sys.executable, "-P", "-c", program, *given],
            stdin=subprocess.DEVNULL,
            pass_fds=(write,),
            env={**os.environ, PIPE: str(write)},
            start_new_session=True,
        )
    finally:
        os.close(write)
    try:
        is_ready = os.read(read, 1) == READY
    except KeyboardInterrupt:
        server.terminate()
        is_ready = False
    finally:
        os.close(read)
    if is_ready:
        server.returncode = 0  # it goes on, and is nobody's child any more
        return 0
    code = server.wait()
    return code_of_signal(-code) if code < 0 else code or 1
