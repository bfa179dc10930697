"""Workers of a server on other machines: what stands for them here, and what runs them there."""
