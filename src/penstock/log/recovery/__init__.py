"""Opens existing logs: reads batches from segments, and rebuilds the derived state."""
