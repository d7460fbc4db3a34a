"""Flows that run: once or continuously, with their tables, checkpoints and what is recorded of them."""
