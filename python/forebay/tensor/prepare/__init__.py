"""What a call means, made ready for the core."""
