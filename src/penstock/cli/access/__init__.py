"""Who may do what, and how much of it: `penstock acls` and `penstock quotas`."""
