"""The connectors that come with Penstock, a package for each system."""
