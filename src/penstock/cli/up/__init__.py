"""`penstock up`: the platform on this machine."""
