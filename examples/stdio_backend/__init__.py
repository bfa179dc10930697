"""A tool server that speaks JSON-RPC on stdin and stdout, pooled unchanged.

Run it from the root of the checkout: `python -m examples.stdio_backend`.
It prints what a cold start of the server costs, and what a call costs once the server is pooled.

`server.py` is an ordinary program that knows nothing of Forebay; it speaks as servers of the Model
Context Protocol do. `__main__.py` is all that pooling takes.
"""
