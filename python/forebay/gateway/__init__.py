"""The executor over HTTP, in a process of its own beside the server."""
