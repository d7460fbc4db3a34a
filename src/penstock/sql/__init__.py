"""Continuous SQL over topics: statements of ours around queries that are Spark's own. `docs/sql.md`."""
