"""Committed offsets: requests, records, expiry. Pure machines."""
