"""A click model whose parameters are tensors of a server, trained by several processes.

Start it as `python -m examples.parameter_server`; `--help` shows what can be chosen.
"""
