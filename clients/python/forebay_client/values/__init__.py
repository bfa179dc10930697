"""Arguments and results as bytes, and as values again."""
