"""The pool that one process lends to all programs of a user."""
