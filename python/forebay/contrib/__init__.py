"""Connections to programs or libraries of others; no system imports them."""
