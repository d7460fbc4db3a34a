"""The transaction coordinator as a state machine: requests in, records and replies out, no I/O."""
