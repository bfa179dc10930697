"""Forebay keeps slow-starting Python, or any program, warm in a process of its own."""
