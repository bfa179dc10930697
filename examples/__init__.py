"""Programs that show Forebay at work; run them from the root of the checkout."""
