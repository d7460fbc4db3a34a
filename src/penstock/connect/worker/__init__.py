"""The worker's own process: state in topics, assignment of work, processes of tasks. No plugin code."""
