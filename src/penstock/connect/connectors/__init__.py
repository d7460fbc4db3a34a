"""The connectors: modules for those that need nothing but the worker, a package for each other system."""
