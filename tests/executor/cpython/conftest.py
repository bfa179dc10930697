"""CPython's tests run in a process of their own; pytest does not collect them."""

from __future__ import annotations

collect_ignore = ["vendored"]  # test_cpython.py runs them
