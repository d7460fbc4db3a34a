"""`penstock topics`, `penstock offsets` and `penstock configs`."""
