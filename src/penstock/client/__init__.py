"""A small synchronous Kafka client on `penstock.wire`: security, metadata, offsets, fetched bytes."""
