"""What travels between clients, servers and workers, as bytes and as errors."""
