"""Who a client is and what it may do: principals, listeners' protocols, TLS and SASL."""
