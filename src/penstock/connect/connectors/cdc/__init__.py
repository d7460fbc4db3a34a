"""What the change data capture sources share: Debezium's settings, envelope, table schemas and snapshots."""
