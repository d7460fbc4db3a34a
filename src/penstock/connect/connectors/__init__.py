"""The connectors that need nothing but the worker."""
