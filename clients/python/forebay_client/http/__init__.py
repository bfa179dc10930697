"""HTTP as this client needs it: what decides does no I/O, and two drivers do it."""
