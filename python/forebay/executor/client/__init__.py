"""Submitting requests to a server, and following them."""
