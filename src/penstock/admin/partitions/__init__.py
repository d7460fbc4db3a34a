"""Partition placement: where replicas are, their sizes, and moving them."""
