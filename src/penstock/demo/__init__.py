"""The flights of 2013 as a stream: what `make run` shows."""
