"""The client: rows pulled from tensors, or pushed to them."""
