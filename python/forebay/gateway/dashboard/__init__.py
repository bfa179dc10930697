"""The dashboard: the files of its page, and the figures that it shows."""
