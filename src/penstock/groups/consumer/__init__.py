"""Consumer groups (KIP-848): members subscribe, the coordinator assigns partitions, and moves each member to
its assignment step by step. Classic members of a group that is being migrated are handled here as well."""
