"""Files of blocks, with the queues that carry their operations out."""
