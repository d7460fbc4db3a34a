"""A SQL server: the engine, its statements, the HTTP endpoint."""
