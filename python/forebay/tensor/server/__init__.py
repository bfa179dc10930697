"""A server of tensors."""
