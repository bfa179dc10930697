"""What each path answers, by subject."""
