"""MySQL and MariaDB: changes of their tables as a source, with Debezium's records and setting names."""

from penstock.connect.connectors.mysql.source import MySqlConnector

__all__ = ["MySqlConnector"]
