"""Replicas of partitions: leader and follower, the in-sync replicas, the high watermark, delayed
operations."""
