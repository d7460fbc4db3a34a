"""Shared by the change data capture sources: Debezium's settings, envelope, table schemas and snapshots."""
