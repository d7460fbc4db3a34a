"""Who a client is: listeners' protocols, TLS, SASL, and principals."""
