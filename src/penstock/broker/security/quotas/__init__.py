"""How much a client may have: quotas, rates and throttling."""
