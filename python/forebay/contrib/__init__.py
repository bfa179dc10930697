"""What fits Forebay to programs and libraries of others: it uses the systems, and none of them uses it."""
