"""Connections: the listening socket, framing, dispatch to the APIs, answers in order, bounded buffers."""
