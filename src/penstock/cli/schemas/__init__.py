"""`penstock schemas` and `penstock registry`."""
