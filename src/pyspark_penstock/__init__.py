"""Spark looks for `pyspark_<format>`: this is how `format("penstock")` is found without registration."""
