"""The parts of Produce: delayed responses, batches that the broker itself writes, producer ids."""
