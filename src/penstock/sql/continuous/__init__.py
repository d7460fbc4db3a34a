"""Continuous queries: defined, planned, run by Spark, replaced."""
