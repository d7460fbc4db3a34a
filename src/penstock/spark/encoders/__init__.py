"""Rows as Avro, JSON and Protobuf, for the sink: schemas of Spark's types, and columns to bytes."""
