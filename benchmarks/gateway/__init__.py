"""The gateway beside other HTTP servers; imports nothing, for every contestant imports this."""
