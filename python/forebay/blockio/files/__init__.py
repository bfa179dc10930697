"""Files of blocks, and the queues that read and write them."""
