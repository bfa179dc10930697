"""The transport beside its peers; imports nothing, for every contestant imports this."""
