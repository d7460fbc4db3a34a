"""Encodes rows as Avro, JSON and Protobuf for the sink: schemas from Spark's types, and columns to bytes."""
