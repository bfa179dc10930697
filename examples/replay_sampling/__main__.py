"""Run the example: write the file, sample it in three ways, print a table, draw a picture."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

EXAMPLES = """\
examples:
  python -m examples.replay_sampling                           a 256 MiB file, half a minute
  python -m examples.replay_sampling --records 1048576         4 GiB of records of 4 KiB
  python -m examples.replay_sampling --memory-share 1          as much memory as the file has
  python -m examples.replay_sampling --picture /tmp/replay.png
"""
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run it; returns the exit code."""
    options = _parser().parse_args(argv)
    from .race import race
    from .records import write

    with tempfile.TemporaryDirectory(dir=options.folder, prefix="replay-") as folder:
        path = Path(folder) / "replay.fbr"
        try:
            write(path, options.records, options.record_bytes)
            race(path, options)
        except KeyboardInterrupt:
            print("\ninterrupted; the file is removed", file=sys.stderr)
            return INTERRUPTED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.replay_sampling",
        description="Sample a replay buffer that is larger than memory, in three ways.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--records", type=int, default=65_536, help="transitions in the file (%(default)s)")
    add("--record-bytes", type=int, default=4096, help="size of each (%(default)s)")
    add("--batch", type=int, default=256, help="transitions of a sample (%(default)s)")
    add("--seconds", type=float, default=2.0, help="of sampling in each turn (%(default)s)")
    add("--rounds", type=int, default=3, help="turns of each way (%(default)s)")
    add(
        "--memory-share",
        type=int,
        default=4,
        help="the file is so many times the memory that may be used (%(default)s)",
    )
    add("--folder", type=Path, default=Path("/var/tmp"), help="on a disk (%(default)s)")
    add(
        "--picture",
        type=Path,
        default=Path("build/replay_sampling.png"),
        help="where it is drawn (%(default)s)",
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
