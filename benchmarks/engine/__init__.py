"""Other engines beside their own comms; imports nothing, for every contestant imports this."""
