"""Subscriptions by regular expression: RE2's syntax, matched with bounded work."""
