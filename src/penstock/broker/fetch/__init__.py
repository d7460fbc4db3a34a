"""The parts of Fetch and ListOffsets: fetch sessions, the lookup of partitions, the search by timestamp."""
