"""The Kafka wire protocol: frames, message codecs, record batches and compression. No sockets."""
