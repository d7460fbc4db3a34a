"""The partition log in Kafka's on-disk format: segments, indexes, producer state, epochs, retention.

Nothing here knows of sockets, requests or other brokers.
"""
