"""Pull queries: rows of materialized tables by key."""
