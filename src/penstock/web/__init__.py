"""The common HTTP layer of all servers: which requests are accepted, and the servers that handle them."""
