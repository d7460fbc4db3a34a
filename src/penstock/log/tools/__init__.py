"""Tools that read log files: dump and verify."""
