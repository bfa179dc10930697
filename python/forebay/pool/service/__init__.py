"""A Python service: how it is described, and what runs in its process."""
