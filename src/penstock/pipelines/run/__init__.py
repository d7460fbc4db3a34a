"""Running flows: once or continuously, with their tables, checkpoints and records."""
