"""`penstock console`."""
