"""Metrics of a broker, and the port where Prometheus scrapes them.

Counting is part of every request, so it is only a few additions on the event loop. Everything that takes time
(names, labels, sums over partitions) happens during a scrape, in its thread.
"""
