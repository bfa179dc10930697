"""Connections to programs and libraries of others; no system imports them."""
