"""Compaction and other rewriting of segments."""
