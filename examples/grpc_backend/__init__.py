"""A gRPC server, pooled unchanged.

Run it from the root of the checkout: `python -m examples.grpc_backend` (needs the package grpcio).
It prints what a cold start of the server costs, and what a call costs once the server is pooled.

`server.py` is an ordinary server that knows nothing of Forebay, `words.py` stands for the module
that grpcio-tools generates from a `.proto` file. `__main__.py` is all that pooling takes.
"""
