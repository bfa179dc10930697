"""The originals' own tables; imports nothing, for every contestant imports this."""
