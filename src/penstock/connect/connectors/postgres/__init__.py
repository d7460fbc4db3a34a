"""PostgreSQL: changes of its tables as a source, with Debezium's records and setting names."""
