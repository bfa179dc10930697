"""`python -m forebay.cli` is the same as `forebay`."""

from __future__ import annotations

import sys

from forebay.cli.command_line import main

sys.exit(main())
