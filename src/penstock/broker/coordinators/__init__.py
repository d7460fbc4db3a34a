"""Runs the coordinators' state machines: loads shards from their partitions, appends records, sends
responses."""
