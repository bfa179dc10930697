"""Calls to one service over several connections."""
