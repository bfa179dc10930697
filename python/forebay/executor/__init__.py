"""A durable queue of requests, and the workers that run them."""
