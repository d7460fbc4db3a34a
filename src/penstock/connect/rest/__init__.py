"""Kafka Connect's REST API: routes, shapes and messages."""
