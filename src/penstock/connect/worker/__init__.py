"""The worker's own process: state in topics, assignment of work, child processes. No plugin code."""
