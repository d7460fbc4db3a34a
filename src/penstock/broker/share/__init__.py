"""Share groups on this broker: sessions, acquired records, state, dead letters."""
