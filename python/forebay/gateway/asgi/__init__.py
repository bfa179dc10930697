"""The ASGI application: it finds the route, checks the token, and calls the server."""
