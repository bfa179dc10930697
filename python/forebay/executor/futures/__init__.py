"""`concurrent.futures` on warm, supervised workers."""
