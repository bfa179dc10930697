"""The server around the dispatcher."""
