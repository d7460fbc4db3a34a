"""What a broker does in the background: periodic jobs, retention, compaction, flushing."""
