"""The hooks process: carries out tries, and says how each ended.

A line of JSON on stdin asks for a try, one on stdout answers it. At the end of stdin the server is
gone, or wants no more: the commands that run are killed, and the process ends at once.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from typing import Any, Final

from forebay.executor.server.hooks.command import Command
from forebay.executor.server.hooks.said import in_a_line
from forebay.executor.server.hooks.webhook import post

LINE_BYTES_MAX: Final = 1 << 20
"""Of what is asked; a body is some kilobytes."""


def main() -> None:
    """Carry out what is asked on stdin."""
    asyncio.run(_serve())


async def _serve() -> None:
    asked = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(asked), sys.stdin)
    async with asyncio.TaskGroup() as tries:
        while line := await asked.readline():
            tries.create_task(_try(json.loads(line)))
        Command.kill_all()
        os._exit(0)  # whatever is under way: a name that is resolved cannot be cancelled


async def _try(asked: dict[str, Any]) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    is_answered, said = False, ""
    try:
        async with asyncio.timeout(asked["seconds"]):
            is_answered, said = await _carry_out(asked)
    except TimeoutError:
        said = f"no answer within {asked['seconds']:g} s"
    except (OSError, ValueError, EOFError) as error:
        said = str(error) or type(error).__name__
    except Exception as error:  # one try's boundary: the others go on
        said = f"fault of the hooks process: {error!r}"
    told = {
        "token": asked["token"],
        "is_answered": is_answered,
        "said": in_a_line(said),
        "seconds": round(loop.time() - begun, 3),
    }
    os.write(1, json.dumps(told).encode() + b"\n")


async def _carry_out(asked: dict[str, Any]) -> tuple[bool, str]:
    """Whether it was answered, and what was said."""
    body = base64.b64decode(asked["body"])
    if asked["url"]:
        return await post(asked["url"], asked["headers"], body)
    return await Command(asked["command"], asked["environment"]).run(body)


if __name__ == "__main__":
    main()
