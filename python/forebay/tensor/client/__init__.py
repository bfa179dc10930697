"""Pulling and pushing rows of tensors."""
