"""Tuning gcc's flags for code size with warm compiler services."""
