"""Subscriptions by regular expression: which topics match, and which of them a member may see."""
