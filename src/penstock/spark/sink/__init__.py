"""Topics written, exactly once: rows to records in transactions, and what an earlier run has written."""
