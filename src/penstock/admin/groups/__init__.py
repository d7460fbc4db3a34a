"""Groups: members, committed offsets, lag, and moving the offsets."""
