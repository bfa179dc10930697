"""Rows of named arrays, pulled from and pushed to other processes. Not there yet: its core is `crates/tensor`."""
