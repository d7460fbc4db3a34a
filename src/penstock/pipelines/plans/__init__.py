"""Compares Spark's plans of flows: what a change of a project means for their state."""
