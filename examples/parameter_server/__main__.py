"""Run the example: train alone, with one worker and with several, compare, measure, draw."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

EXAMPLES = """\
examples:
  python -m examples.parameter_server                          a minute; draws a picture
  python -m examples.parameter_server --quick                  ten seconds, without a picture
  python -m examples.parameter_server --workers 8 --shards 4
  python -m examples.parameter_server --rows 1000000 --batch 512
"""
INTERRUPTED = 130
QUICK = {"tables": 4, "rows": 100, "steps": 100, "batch": 64, "workers": 2, "picture": None}


def main(argv: Sequence[str] | None = None) -> int:
    """Run it; returns the exit code."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.quick:
        parser.set_defaults(**QUICK)
        options = parser.parse_args(argv)  # what was said counts more than what is quick
    from .report import report

    with tempfile.TemporaryDirectory(prefix="parameter-server-") as folder:
        try:
            report(options, Path(folder))
        except KeyboardInterrupt:
            print("\ninterrupted; every process has ended", file=sys.stderr)
            return INTERRUPTED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.parameter_server",
        description="Train a click model whose parameters are tensors of a server.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="a smaller model, fewer steps, no picture")
    add("--tables", type=int, default=8, help="tables of embeddings (%(default)s)")
    add("--rows", type=int, default=200, help="rows of each table (%(default)s)")
    add("--shards", type=int, default=2, help="processes that have the parameters (%(default)s)")
    add("--workers", type=int, default=4, help="processes that train (%(default)s)")
    add("--slots", type=int, default=16, help="requests of a worker at once (%(default)s)")
    add("--steps", type=int, default=1000, help="of training, of all workers (%(default)s)")
    add("--batch", type=int, default=128, help="impressions of a step (%(default)s)")
    add("--held-out", type=int, default=4096, help="impressions to judge by (%(default)s)")
    add(
        "--measured",
        type=int,
        nargs="+",
        default=[1, 2, 4, 8],
        metavar="WORKERS",
        help="numbers of workers whose throughput is drawn (1 2 4 8)",
    )
    add("--measured-steps", type=int, default=100, help="of each worker then (%(default)s)")
    add(
        "--picture",
        type=Path,
        default=Path("build/parameter_server.png"),
        help="where throughput is drawn (%(default)s)",
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
