"""Topics as tables: rows appended to a Delta or Iceberg table together with the offsets they came from."""
