"""Other ways to pull tensors under the same pulls."""
