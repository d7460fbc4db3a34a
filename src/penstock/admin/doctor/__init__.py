"""Checks of a running cluster: what is wrong, and what to do about it."""
