"""A schema registry with Confluent's REST API, stored in a compacted topic of any Kafka cluster."""
