"""Connections to programs and libraries of others, made of the public faces of the systems."""
