"""Continuous queries: defining, planning, running and replacing them."""
