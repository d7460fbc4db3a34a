"""The broker process: sockets, framing, the APIs it serves, and the wiring of log, metadata and jobs."""
