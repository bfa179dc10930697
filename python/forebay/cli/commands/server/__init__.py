"""Commands about what a server does by itself."""
