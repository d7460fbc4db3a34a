"""Kafka Connect's REST API: routes, response formats and messages."""
