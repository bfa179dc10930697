"""A policy that learns gcc's flags on some programs, and is judged on others.

Start it as `python -m examples.autotune`; `--help` shows what can be chosen.
"""
