"""Projects in the format of Spark Declarative Pipelines, run once or continuously."""
