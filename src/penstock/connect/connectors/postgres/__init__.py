"""PostgreSQL: changes of its tables as a source, with Debezium's records and setting names."""

from penstock.connect.connectors.postgres.source import PostgresConnector

__all__ = ["PostgresConnector"]
