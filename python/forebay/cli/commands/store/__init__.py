"""Commands about the store of a server as a whole."""
