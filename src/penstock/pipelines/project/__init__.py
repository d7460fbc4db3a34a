"""A project: its files, and the datasets and flows that they define."""
