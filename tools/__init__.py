"""Programs that make parts of the repository; nothing of them is installed."""
