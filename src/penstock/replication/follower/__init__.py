"""Partitions that this broker follows: fetched from their leaders, truncated where their epochs diverge."""
