"""`penstock cluster`: describe it, move partitions, elect leaders."""
