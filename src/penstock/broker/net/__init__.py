"""Connections: listening sockets, framing, dispatch to the APIs, responses in order, bounded buffers."""
