"""Applications: their requests, the options of these, and the context of a run."""
