"""Where the pure coordinators run: shards loaded from their partitions, records appended, answers sent."""
