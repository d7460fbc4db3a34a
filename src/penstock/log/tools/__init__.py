"""Reading a log from outside: dump and verify."""
