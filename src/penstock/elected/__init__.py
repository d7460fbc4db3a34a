"""Servers that elect a leader through a Kafka group, and the state topic that the leader writes."""
