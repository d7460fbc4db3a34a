"""The wire: frames, message codecs, record batches and compression. Bytes in, objects out; no sockets."""
