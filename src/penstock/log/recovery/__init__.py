"""A log opened again: batches read back from segments, and the state that follows from them."""
