"""Forebay beside its neighbours in what a user meets first: a start, a call, an array, memory."""
