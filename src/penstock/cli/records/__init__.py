"""`penstock produce` and `penstock consume`: records in and out."""
