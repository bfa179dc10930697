"""What an application says: its requests, their options, and what a run of one knows."""
