"""A server as a service of its machine: what stops and resumes it, what its manager is told."""
