"""Spark's SQL as text: its tokens with their places, quoted identifiers, and types by their names."""
