"""Calls commands and webhooks when a request is dead or a limit is near."""
