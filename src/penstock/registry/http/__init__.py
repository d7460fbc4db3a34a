"""The REST API: routes, one request at a time in one format, errors in Confluent's shape."""
