"""The REST API: routes, request parsing, errors in Confluent's format."""
