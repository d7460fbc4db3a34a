"""The built-in connectors: a module for each without external dependencies, a package for each external
system.
"""
