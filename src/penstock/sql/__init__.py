"""Continuous SQL over topics: Penstock's statements around queries in Spark SQL. See `docs/sql.md`."""
