"""What Produce stands on: answers that wait, batches of the broker's own, producer ids."""
