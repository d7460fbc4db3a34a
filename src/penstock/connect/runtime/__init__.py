"""What runs in the processes of connectors and tasks. The worker's own process imports no plugin code."""
