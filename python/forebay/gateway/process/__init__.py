"""The process of the gateway: how it begins, and who watches it."""
