"""What a broker counts and measures, and the port where Prometheus reads it.

Counting is part of every request, so it is a few additions on the event loop. All that takes time (names,
labels, sums over partitions) happens when the metrics are read, in the thread of that request.
"""
