"""Forebay beside its peers: one folder per system, one row per claim.

`python -m benchmarks SYSTEM [--quick] [--json FILE]` runs them, after `make bench-setup`.
Nothing here imports Forebay or a peer before a contestant's own process does.
"""
