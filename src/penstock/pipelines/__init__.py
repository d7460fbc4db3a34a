"""Projects in Spark's declarative format, run once or kept running."""
