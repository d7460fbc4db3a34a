"""Client quotas: rates and throttling."""
