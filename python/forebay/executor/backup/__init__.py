"""Backups: folders that a server can start from."""
