"""Acquiring and leasing services of a pool of this process."""
