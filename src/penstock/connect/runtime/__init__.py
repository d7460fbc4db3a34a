"""The code of connector and task processes. The worker's own process imports no plugin code."""
