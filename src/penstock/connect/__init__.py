"""Connect: a worker that runs connectors with Kafka Connect's REST API, names and semantics."""
