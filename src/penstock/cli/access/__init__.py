"""Who may do what, how much of it, and who tried: `penstock acls`, `penstock quotas` and `penstock audit`."""
