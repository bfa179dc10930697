"""One trial in a process: `python -m examples.gcc_tuning.trial FOLDER PROGRAM FLAG ...`."""

from __future__ import annotations

import json
import sys

from .toolchain import Toolchain

if __name__ == "__main__":
    toolchain = Toolchain(sys.argv[1])
    try:
        json.dump(toolchain.compile(sys.argv[2], sys.argv[3:]), sys.stdout)
    finally:
        toolchain.clean()
