"""`penstock connect`: a worker, and its connectors."""
