"""The shell, and the client of a SQL server."""
