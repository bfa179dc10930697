"""Services that are any executable."""
