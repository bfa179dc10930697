"""Commands about what a server does by itself, and what it survives."""
