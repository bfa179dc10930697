"""A server that takes the place of a running one. The concept is the page takeover.md."""
