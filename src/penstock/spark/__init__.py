"""Kafka topics in Spark: the data source, the exactly-once sink, and what streams need beside them."""
