"""Where partitions are, how large, and what it takes to move them."""
