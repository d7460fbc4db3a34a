"""What Fetch and ListOffsets stand on: sessions, the lookup of partitions, the search for a time."""
