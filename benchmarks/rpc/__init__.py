"""Calls beside their peers; imports nothing, for every contestant imports this."""
