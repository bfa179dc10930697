"""What works on this machine, and what to type where something does not: `forebay doctor`.

A check only reads: it starts no process and leaves nothing behind.
"""
