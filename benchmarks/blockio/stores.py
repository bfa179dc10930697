"""What a run has prepared, told to its contestants' processes by an environment variable."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

VARIABLE = "BENCH_BLOCKIO_STORES"


@dataclass(frozen=True, slots=True)
class Stores:
    """Files of written blocks, and limits to run under.

    Attributes:
        disk: the file on a real disk.
        zram: the same blocks on a compressed RAM disk; empty where there is none.
        zram_missing: why there is none.
        records: the same blocks as a `RecordFile`; empty where there is none.
        memory_group: control group with a memory limit, to be entered; empty where there is none.
        cpu_group: the same group in the tree of the cpu controller.
        limits_missing: why there is none.
    """

    disk: str
    zram: str = ""
    zram_missing: str = "no row that was asked for needs one"
    records: str = ""
    memory_group: str = ""
    cpu_group: str = ""
    limits_missing: str = "it sets a memory limit and the disk's read-ahead: give --limits"

    def tell(self) -> None:
        """Have the processes that are started from now on know."""
        os.environ[VARIABLE] = json.dumps(asdict(self))

    def path(self, store: str) -> Path:
        """The file of a store: `direct` and `cached` are the disk's, `zram` has its own.

        Raises:
            FileNotFoundError: there is no such store; the message says why.
        """
        if store != "zram":
            return Path(self.disk)
        if not self.zram:
            raise FileNotFoundError(f"no zram device: {self.zram_missing}")
        return Path(self.zram)


def told() -> Stores:
    """What the run that started this process has prepared."""
    return Stores(**json.loads(os.environ[VARIABLE]))


def forget() -> None:
    """Tell no further process: what was prepared is gone."""
    os.environ.pop(VARIABLE, None)
