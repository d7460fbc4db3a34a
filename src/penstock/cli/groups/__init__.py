"""`penstock groups`: list, describe, reset and delete groups, and watch their lag."""
