"""Which lines of Rust and Python the tests run: `python -m tools.coverage`."""
