"""A schema registry with the REST API of Confluent's, kept in a compacted topic of any Kafka cluster."""
