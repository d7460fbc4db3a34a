"""Typed columns: keys and values decoded by a schema of the registry, or as plain JSON and CSV."""
