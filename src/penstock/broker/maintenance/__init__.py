"""Background work of a broker: periodic jobs, retention, compaction, flushing."""
