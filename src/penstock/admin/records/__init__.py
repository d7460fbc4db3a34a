"""Records of topics: read as columns, found by a SQL condition, to and from files, replayed, encoded."""
