"""Servers that elect a leader among them by a Kafka group, and the topic with their state that it writes."""
