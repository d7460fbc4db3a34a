"""Reads topics: the data source that Spark finds, its options and plans, record batches as Arrow columns."""
