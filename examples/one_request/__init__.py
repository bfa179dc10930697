"""One request through a Python service, a gRPC server and a tool server."""
