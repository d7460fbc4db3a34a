"""Spark's SQL as text: its tokens with their places, and quoted identifiers."""
