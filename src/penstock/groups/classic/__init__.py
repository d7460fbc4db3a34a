"""Classic groups: JoinGroup, SyncGroup, generations. Pure machines."""
