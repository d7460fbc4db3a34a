"""Writes to topics exactly once: rows become records in transactions, and marks show what an earlier run has
written.
"""
